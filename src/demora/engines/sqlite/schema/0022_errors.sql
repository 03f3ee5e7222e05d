-- online
-- An index for lists of jobs with an error of a class, whatever their states are.

create index jobs_of_error on jobs (substr(error, 1, min(instr(error || ':', ':') - 1, 200)), id) where error is not null;
