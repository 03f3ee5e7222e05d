-- The pace of a queue: its policy, its state, and who set it. Released jobs are in the lane of released jobs.

create table paces (
    queue text primary key,
    pace text,                      -- core.pace.Pace as JSON; null: taken off
    lanes text,                     -- what core.pace says that it governs, as JSON; null: taken off
    state text not null,            -- core.pace.PaceState as JSON
    set_at int not null,
    set_by text not null
) without rowid;

create table pace_changes (
    seq integer primary key,
    queue text not null,
    at int not null,
    by text not null,
    pace text,                      -- null: taken off
    setting text                    -- what the settings asked for, if they did
);
create index changes_of_pace on pace_changes (queue, seq);

alter table queues add column paused_by text;
