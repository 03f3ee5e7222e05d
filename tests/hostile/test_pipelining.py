"""A caller that sends garbage right after a request: the answer finds the connection closed, and the log stays quiet."""

import asyncio
from pathlib import Path

import pytest

from tests.hostile.services import request, serving


@pytest.mark.slow
async def test_an_answer_to_a_connection_that_is_closed_already_is_no_fault(tmp_path: Path) -> None:
    async with serving(tmp_path, "--no-worker") as service:
        for _ in range(20):
            reader, writer = await service.connect()
            writer.write(request("GET", "/api/v1/jobs?status=FAILED") * 3 + b"\0\0\0\r\n\r\n")
            async with asyncio.timeout(20):
                while await reader.read(1000):
                    pass
            writer.close()
        answer, _ = await service.ask("GET", "/health/ready")
        assert answer.status == 200
    assert "Traceback" not in (tmp_path / "service.log").read_text()
    assert "request.failed" not in (tmp_path / "service.log").read_text()
