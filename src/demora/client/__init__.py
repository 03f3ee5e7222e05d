"""What an application may ask. Python code, HTTP service and command line all speak through this client."""
