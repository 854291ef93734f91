-- A file that was deleted keeps its place in lists for a while: a client that deletes what it lists asks
-- for the page behind it (dataplane/files/catalog.ts).
alter table files
  drop constraint files_check,
  add constraint files_listed check (state <> 'ready' or position is not null) not valid;
