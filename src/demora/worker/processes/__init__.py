"""Process handlers: one child process for each job that runs, each with a pipe of its own."""
