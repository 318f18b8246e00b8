"""Tokens of the API, for administrators; and who the caller is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, cast

from fastapi import APIRouter, Path, Request

from backend import schemas as s
from backend.errors import NotFound
from backend.routes.deps import ServicesDep
from backend.security import tokens
from backend.security.tokens import Identity

router = APIRouter(tags=["tokens"])


@router.get("/whoami")
def whoami(request: Request) -> s.IdentityInfo:
    """Name and scope of the token that the request came with (`local`: none was asked for)."""
    identity = cast(Identity, request.state.identity)
    return s.IdentityInfo(name=identity.name, scope=identity.scope, token_id=identity.token_id)


@router.get("/tokens")
def list_tokens(services: ServicesDep) -> s.TokensResponse:
    """All tokens, newest first; never their secrets."""
    with services.reading() as connection:
        found = [s.TokenInfo(**asdict(token)) for token in tokens.list_tokens(connection)]
    return s.TokensResponse(tokens=found)


@router.post("/tokens", status_code=201)
def create_token(services: ServicesDep, request: s.TokenRequest) -> s.NewToken:
    """Make a token. The answer is the only place where it is ever shown."""
    with services.writing() as connection:
        token_id, token = tokens.issue(
            connection,
            request.name,
            request.scope,
            request.days,
            max_queued=request.max_queued,
            max_running=request.max_running,
        )
    return s.NewToken(id=token_id, token=token)


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(
    services: ServicesDep, token_id: Annotated[str, Path(pattern="^[0-9a-f]{12}$")]
) -> None:
    """Revoke a token at once."""
    with services.writing() as connection:
        if not tokens.revoke(connection, token_id):
            raise NotFound(f"there is no valid token {token_id}")
