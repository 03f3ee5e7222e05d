-- online
-- The id that a remote worker gave the claim of a job, by which it gets the job again if the answer was lost.
alter table demora.jobs add column claim_id text collate "C";
