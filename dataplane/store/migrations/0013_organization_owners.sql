-- The namespace that had the organization's id first owns it for ever (rule 8.3): another one that declares it is not
-- copied. Null: nobody has declared it since this column is there, or the platform released it.
alter table organizations add column namespace text;
