-- What each organization keeps (rule 7.8): files, requests of batches, results. The sums move in the statement that
-- makes or takes away what is counted, so that they are exact; `npm run audit` counts again.

-- Room that a file takes: while it is being written what is reserved for it, then its size. It counts in every state
-- but `removed`.
alter table files add column stored_bytes bigint not null default 0;
update files set stored_bytes = size_bytes where state in ('ready', 'hidden');
-- What the sums are counted again from.
create index files_stored on files (organization_id) where state <> 'removed';

-- Room that the rows of a batch take: its requests until it ends, then (of a message batch) its results. It counts
-- until the batch is emptied.
alter table batches add column stored_bytes bigint not null default 0;
update batches set stored_bytes = (
  select coalesce(sum(coalesce(octet_length(body), 0) + coalesce(octet_length(line), 0)), 0)
  from batch_items where batch_id = batches.id
) where not emptied;

create table storage (
  organization_id text primary key,
  bytes bigint not null,
  files bigint not null
);
insert into storage (organization_id, bytes, files)
select organization_id, sum(bytes), sum(files) from (
  select organization_id, stored_bytes as bytes, 1 as files from files where state <> 'removed'
  union all
  select organization_id, stored_bytes, 0 from batches where not emptied
) as kept group by organization_id;
