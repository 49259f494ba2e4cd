"""`/healthz` and `/metrics`: the state of the server for load balancers and Prometheus."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the server answers."""
    return {"status": "ok"}
