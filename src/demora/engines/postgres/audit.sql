-- Triggers that record an event for each transition of a job, in the same transaction. They apply to every process and every
-- call, and stay in the database until `end_audit` drops them. demora_clock.wall is the clock as the current statement read it.
-- A write that changes nothing records no event. A change is recorded before it is made, so that the trace of the worker that
-- made it comes after it.

create or replace function demora.audit_added() returns trigger language plpgsql as $$
begin
    insert into demora.events (at, job_id, kind, status, token, credits, retries, generation, max_retries, queue, lane, rank,
                               due_at, expires_at, unique_key)
    values (current_setting('demora_clock.wall')::bigint, new.id, 'added', new.status, new.token, new.credits, new.retries,
            new.generation, new.max_retries, new.queue, new.lane, new.rank, new.due_at, new.expires_at,
            case when new.namespace = '' then '' else new.namespace || ' ' end || new.type || ' ' || new.unique_key);
    return null;
end $$;

create or replace function demora.audit_moved() returns trigger language plpgsql as $$
begin
    insert into demora.events (at, job_id, kind, old_status, status, old_token, token, credits, retries, generation,
                               max_retries, queue, lane, rank, due_at, worker_id, old_lease_until, lease_until, wished, error,
                               expires_at, unique_key)
    values (
        current_setting('demora_clock.wall')::bigint, new.id,
        case
            when new.status = {PROCESSING} and (old.status <> {PROCESSING} or old.token <> new.token) then 'claimed'
            when old.status = {PROCESSING} and new.status <> {PROCESSING} then 'settled'
            when new.status = {PROCESSING} and old.cancel_requested_at is null and new.cancel_requested_at is not null then 'cancel_requested'
            when new.status = {PROCESSING} then 'renewed'
            when old.status > {PROCESSING} and new.status < {PROCESSING} and new.token > new.credits then 'restored'
            when old.status > {PROCESSING} and new.status < {PROCESSING} then 'retried'
            when old.status < {PROCESSING} and new.status > {PROCESSING} then 'cancelled'
            else 'changed'
        end,
        old.status, new.status, old.token, new.token, new.credits, new.retries, new.generation, new.max_retries, new.queue,
        new.lane, new.rank, new.due_at, new.worker_id, old.lease_until, new.lease_until,
        new.cancel_requested_at is not null, case when old.status = {PROCESSING} and new.status <> {PROCESSING} then new.error end,
        new.expires_at, case when new.namespace = '' then '' else new.namespace || ' ' end || new.type || ' ' || new.unique_key
    );
    return new;
end $$;

create or replace function demora.audit_removed() returns trigger language plpgsql as $$
begin
    insert into demora.events (at, job_id, kind, old_status, old_token, token, credits, retries, generation, max_retries,
                               queue, lane, rank, due_at)
    values (current_setting('demora_clock.wall')::bigint, old.id, 'removed', old.status, old.token, old.token, old.credits,
            old.retries, old.generation, old.max_retries, old.queue, old.lane, old.rank, old.due_at);
    return null;
end $$;

create or replace trigger audit_added after insert on demora.jobs
for each row execute function demora.audit_added();

create or replace trigger audit_moved before update on demora.jobs
for each row when (not (
    old.status = {PROCESSING} and new.status = {PROCESSING} and old.token = new.token and old.lease_until = new.lease_until
    and (old.cancel_requested_at is null) = (new.cancel_requested_at is null))
    and not (new.lined_epoch > 0 and new.lined_epoch is distinct from old.lined_epoch)) -- a confirmed place in a line is no transition
execute function demora.audit_moved();

create or replace trigger audit_removed after delete on demora.jobs
for each row execute function demora.audit_removed();

-- The version of these triggers. It grows when they change, and then `begin_audit` creates them again.
insert into demora.meta (name, value) values ('audit', '5') on conflict (name) do update set value = excluded.value;
