-- A list of keys is in the order of `position`, which a row gets when it is inserted; its time is of that moment now,
-- and not of the transaction's beginning, which may have waited for others.
alter table api_keys alter column created_at set default clock_timestamp();
