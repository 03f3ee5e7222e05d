"""A shop that takes orders and sends the mails about them later."""

from flask import Flask, abort, current_app, request

from demora.contrib.flask import FlaskDemora
from demora.errors import JobNotFound

jobs = FlaskDemora()


@jobs.job("mail.send", max_retries=5)
def send_mail(to: str) -> str:
    current_app.logger.info("sending a mail")
    return f"sent to {to} by {current_app.config['SENDER']}"


def create_app() -> Flask:
    app = Flask(__name__)
    app.config["SENDER"] = "shop@example.com"
    app.config.from_prefixed_env("SHOP")
    jobs.init_app(app)

    @app.post("/orders")
    def order() -> tuple[dict[str, str], int]:
        job = send_mail.enqueue_blocking(to=request.form["email"])
        return {"job": job.id}, 202

    @app.get("/jobs/<id>")
    def job(id: str) -> dict[str, str]:
        try:
            job = jobs.blocking.get(id)
        except JobNotFound:
            abort(404)
        return {"status": job.status.name, "result": job.result}

    return app
