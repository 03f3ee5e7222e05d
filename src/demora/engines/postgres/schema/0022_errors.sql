-- online
-- An index for lists of jobs with an error of a class, whatever their states are.

create index concurrently jobs_of_error on demora.jobs
((left(split_part(error, ':', 1), 200)) collate "C", id) where error is not null;
