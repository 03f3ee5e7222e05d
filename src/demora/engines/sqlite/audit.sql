-- Triggers that record an event for each transition of a job, in the same transaction. They apply to every process and every
-- call, and stay in the file until `end_audit` drops them. demora_wall() and demora_boot() are the clocks of the current call;
-- every connection of demora has these functions. A write that changes nothing records no event.

create trigger if not exists audit_added after insert on jobs
begin
    insert into events (at, boot, job_id, kind, status, token, credits, retries, generation, max_retries, queue, lane, rank,
                        due_at, expires_at, unique_key)
    values (demora_wall(), demora_boot(), new.id, 'added', new.status, new.token, new.credits, new.retries,
            new.generation, new.max_retries, new.queue, new.lane, new.rank, new.due_at, new.expires_at,
            iif(new.namespace = '', '', new.namespace || ' ') || new.type || ' ' || new.unique_key);
end;

create trigger if not exists audit_moved after update on jobs
when not (old.status = {PROCESSING} and new.status = {PROCESSING} and old.token = new.token and old.lease_until = new.lease_until
          and (old.cancel_requested_at is null) = (new.cancel_requested_at is null))
    and not (new.lined_epoch > 0 and new.lined_epoch is not old.lined_epoch) -- a confirmed place in a line is no transition
begin
    insert into events (at, boot, job_id, kind, old_status, status, old_token, token, credits, retries, generation,
                        max_retries, queue, lane, rank, due_at, worker_id, old_lease_until, lease_until, wished, error,
                        expires_at, unique_key)
    values (
        demora_wall(), demora_boot(), new.id,
        case
            when new.status = {PROCESSING} and (old.status <> {PROCESSING} or old.token <> new.token) then 'claimed'
            when old.status = {PROCESSING} and new.status <> {PROCESSING} then 'settled'
            when new.status = {PROCESSING} and old.cancel_requested_at is null and new.cancel_requested_at is not null then 'cancel_requested'
            when new.status = {PROCESSING} and new.lease_until = 0 then 'lapsed'
            when new.status = {PROCESSING} then 'renewed'
            when old.status > {PROCESSING} and new.status < {PROCESSING} and new.token > new.credits then 'restored'
            when old.status > {PROCESSING} and new.status < {PROCESSING} then 'retried'
            when old.status < {PROCESSING} and new.status > {PROCESSING} then 'cancelled'
            else 'changed'
        end,
        old.status, new.status, old.token, new.token, new.credits, new.retries, new.generation, new.max_retries, new.queue,
        new.lane, new.rank, new.due_at, new.worker_id, old.lease_until, new.lease_until,
        new.cancel_requested_at is not null, iif(old.status = {PROCESSING} and new.status <> {PROCESSING}, new.error, null),
        new.expires_at, iif(new.namespace = '', '', new.namespace || ' ') || new.type || ' ' || new.unique_key
    );
end;

create trigger if not exists audit_removed after delete on jobs
begin
    insert into events (at, boot, job_id, kind, old_status, old_token, token, credits, retries, generation, max_retries, queue,
                        lane, rank, due_at)
    values (demora_wall(), demora_boot(), old.id, 'removed', old.status, old.token, old.token, old.credits, old.retries,
            old.generation, old.max_retries, old.queue, old.lane, old.rank, old.due_at);
end;
