"""demora in FastAPI: the store opens with the application, and endpoints can run later, in a worker."""

from ..starlette import demora_client, lifespan
from .declaration import AtRequest
from .later import later
from .routes import JobStatus, add_job_routes
from .site import NoWebApplication
from .uploads import UploadFolder, UploadStore

__all__ = ["AtRequest", "JobStatus", "NoWebApplication", "UploadFolder", "UploadStore"]
__all__ += ["add_job_routes", "demora_client", "later", "lifespan"]
