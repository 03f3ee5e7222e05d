-- The pace of a queue: its policy, its state, and who set it. Released jobs are in the lane of released jobs.
-- Whoever lets jobs go does it under the lock of this row, and only if its state is still the one that was planned from.

create table demora.paces (
    queue text collate "C" primary key,
    pace text,                        -- core.pace.Pace as JSON; null: taken off
    lanes smallint[],                 -- what core.pace says that it governs; null: taken off
    protects text[],                  -- what core.pace says that it protects; null: taken off
    reach int,                        -- what core.pace says that one look lets go at most; null: taken off
    state text not null,              -- core.pace.PaceState as JSON
    set_at bigint not null,
    set_by text not null
) with (fillfactor = 50);

create table demora.pace_changes (
    seq bigint generated always as identity primary key,
    queue text collate "C" not null,
    at bigint not null,
    by text not null,
    pace text,                        -- null: taken off
    setting text                      -- what the settings asked for, if they did
);
create index changes_of_pace on demora.pace_changes (queue, seq);

alter table demora.queues add column paused_by text;
