"""Base URLs in every form that people write them."""

from __future__ import annotations

import jsonschema
import pytest

from iop.node.adapters.urls import beside, target
from iop.settings import OPENAI_COMPAT_SETTINGS

PATHS = ("/v1/chat/completions", "/v1/models", "/v1/embeddings", "/v1/completions")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("base_url", "prefix"),
    [
        ("http://b:1", ""),
        ("http://b:1/", ""),
        ("http://b:1/v1", ""),
        ("http://b:1/v1/", ""),
        ("http://b:1/v1//", ""),
        ("http://b:1/api/v1", "/api"),
        ("http://b:1/api/v1/", "/api"),
        ("http://b:1/api", "/api"),
        ("http://b:1/av1", "/av1"),
        ("http://b:1/openai/av1/", "/openai/av1"),
        ("http://[::1]:1/v1", ""),
    ],
)
def test_one_slash_rule_for_every_endpoint(base_url: str, prefix: str, path: str) -> None:
    """UR-01: never /v1/v1, never //, never a doubled endpoint; a last segment is a version only as a whole."""
    assert target(base_url, path) == prefix + path


def test_another_version_stands_for_the_paths_own() -> None:
    """UR-01"""
    assert target("https://b/v1beta/v4", "/v1/chat/completions") == "/v1beta/v4/chat/completions"
    assert target("https://b/paas/v4/", "/v1/models") == "/paas/v4/models"


@pytest.mark.parametrize(
    "base_url", ["http://b:1/v1/chat/completions", "http://b:1/v1/models/", "http://b:1/v1?x=1", "http://b:1/#x", "b:1"]
)
def test_an_endpoint_or_a_query_is_refused_when_it_is_configured(base_url: str) -> None:
    """UR-01"""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"base_url": base_url}, OPENAI_COMPAT_SETTINGS)


@pytest.mark.parametrize(
    ("base_url", "asked"),
    [
        ("http://b:1", "/health"),
        ("http://b:1/v1", "/health"),
        ("http://b:1/v1/", "/health"),
        ("http://b:1/api/v1", "/api/health"),
        ("http://b:1/api/", "/api/health"),
        ("http://b:1/paas/v4", "/paas/health"),
    ],
)
def test_a_path_that_is_no_endpoint_is_beside_the_version(base_url: str, asked: str) -> None:
    """UR-01: a server's health is not a part of its API"""
    assert beside(base_url, "/health") == asked
