"""LangChain's provider of OpenAI's API against the real binary, runs counted. Part of the soak,
which installs it."""

import os

import openai
import pytest

if "CAPSTAN_SOAK" not in os.environ:
    pytest.skip("soak: needs CAPSTAN_SOAK", allow_module_level=True)

from langchain_openai import ChatOpenAI

TEXT = " ".join(f"tok{n}" for n in range(1, 13))


def runs(gateway, http):
    return len(http.get(f"{gateway.url}/v1/streams", params={"limit": 1000}).json()["streams"])


@pytest.mark.parametrize("use_responses_api", [True, False])
def test_langchain_whole_streamed_and_failed(gateway, http, use_responses_api):
    model = ChatOpenAI(
        model="demo",
        base_url=f"{gateway.url}/v1",
        api_key="sk-local",
        use_responses_api=use_responses_api,
    )
    before = runs(gateway, http)
    assert model.invoke("/tokens 12").text.strip() == TEXT
    assert "".join(chunk.text for chunk in model.stream("/tokens 12")).strip() == TEXT
    with pytest.raises(openai.BadRequestError):
        model.invoke("/fault content_refused")
    with pytest.raises(openai.APIError):
        list(model.stream("/fault upstream_auth"))
    assert runs(gateway, http) == before + 4
