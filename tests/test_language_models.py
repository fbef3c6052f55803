"""Hugging Face language models with a compressed head, created and briefly trained here without downloads."""

import copy

import pytest
import torch

from topsign import nn

transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of transformers
VOCABULARY = 300


@pytest.fixture(scope="module")
def model():
    """Small Llama with tied embeddings that counts upwards after a few training steps."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), 5e-3)
    for _ in range(60):
        ids = (torch.randint(0, VOCABULARY, (16, 1)) + torch.arange(12)) % VOCABULARY
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


@pytest.fixture
def compressed(model):
    return nn.compress_module(copy.deepcopy(model), "lm_head", n_bytes=22, shortlist=40, random_state=7)


def test_the_input_embedding_stays(model, compressed):
    """Embedding and head are tied before compression and not afterwards, and no call ties them again."""
    assert model.lm_head.weight is model.get_input_embeddings().weight
    before = model.get_input_embeddings().weight
    assert isinstance(compressed.lm_head, nn.CompressedLinear)
    compressed.tie_weights()
    assert isinstance(compressed.lm_head, nn.CompressedLinear)
    assert torch.equal(compressed.get_input_embeddings().weight, before)
    assert compressed.config.tie_word_embeddings is False
    assert model.config.tie_word_embeddings is True
    ids = torch.arange(5)[None] + 7
    hidden, other = (one.model(input_ids=ids).last_hidden_state for one in (model, compressed))
    assert torch.equal(hidden, other)


@pytest.mark.parametrize(
    "how",
    [
        {"do_sample": False},
        {"do_sample": False, "num_beams": 3},
        {"do_sample": True, "top_k": 5},
        {"do_sample": True, "top_k": 0, "temperature": 2.0},
    ],
    ids=["greedy", "beams", "top_k", "sampled"],
)
def test_models_generate(model, compressed, how):
    """Greedy and beam search give the tokens of the exact head, which are on every shortlist; sampling works."""
    ids = torch.tensor([[30, 31, 32], [150, 151, 152]])
    torch.manual_seed(1)
    found = compressed.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, **how)
    assert found.shape == (2, 11)
    assert ((found >= 0) & (found < VOCABULARY)).all()
    if not how["do_sample"]:
        expected = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, **how)
        assert torch.equal(found, expected)
        assert torch.equal(found[:, 3:], ids[:, -1:] + torch.arange(1, 9))  # the model learned to count
    for row in found:
        place = len(ids[0])
        for end in range(place, len(row)):
            logits = compressed(input_ids=row[None, :end]).logits[0, -1]
            assert how.get("num_beams", 1) > 1 or logits[row[end]].isfinite()
