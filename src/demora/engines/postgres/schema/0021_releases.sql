-- online
-- The release of the code that a process loaded, so that a release that no live process runs no longer counts as the newest.

alter table demora.schedule_processes add column release text;
