"""Process handlers: each job that runs has a child process, and each child process has a pipe to its worker."""
