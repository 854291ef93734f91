-- Whose result counts. A worker that was cut off may find that an item of it ran elsewhere, or a second time here: so
-- what a run stores is compared with the taking that it belongs to, not with the worker. Random, not counted up: a
-- Postgres that lost its last transactions must not give the same token twice.

-- Of the worker's last taking; kept once the item is over, as the one whose result it is.
alter table batch_items add column claim uuid;
-- Of who validates or finalizes it.
alter table batches add column claim uuid;
