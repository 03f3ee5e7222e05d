-- online
-- The release of the code that a process loaded, so that a release that no live process runs no longer counts as the newest.

alter table schedule_processes add column release text;
