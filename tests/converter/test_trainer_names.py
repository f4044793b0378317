"""Names and values between the trainer and the checkpoint, both ways."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from converter.models import CONFIGS, WITHOUT_TRAINER, model
from hypothesis import assume, given
from hypothesis import strategies as st

from precc.graph.catalogue import catalogue, find_model
from precc.graph.families import families
from precc.graph.model import ModelGraph, Tensor
from precc.graph.reading import read_model
from precc.syntax.words import Role
from precc_converter.trainer import (
    LATER_INNER,
    Place,
    Spelling,
    TrainerNames,
    UnknownName,
    UnmappedTensor,
)
from precc_converter.trainer.values import CopiesDiffer, WrongShape, gather, to_huggingface, to_megatron

SPELLINGS = [
    Spelling(grouped, fused, inner)
    for grouped in (True, False)
    for fused in (True, False)
    for inner in ("transformer_layer", LATER_INNER)
]
FAMILIES = sorted(CONFIGS)


def test_every_family_is_tried() -> None:
    """A new family needs a small model here."""
    assert sorted({family.name for family in families()} - {*WITHOUT_TRAINER}) == FAMILIES


NAMED = [name for name in catalogue() if read_model(name).family not in WITHOUT_TRAINER]


@pytest.mark.parametrize(
    "name, why",
    [
        ("deepseek-v4-flash", "no Megatron-Core name is known for"),
        ("nemotron-3-nano-30b-a3b", "no Megatron-Core name is known for"),
        ("gemma-4-31b", "no Megatron-Core name is known for"),
    ],
)
def test_a_model_that_megatron_has_not_has_no_parameters(name: str, why: str) -> None:
    """It is an error that names a tensor, and not a wrong name."""
    with pytest.raises(UnmappedTensor, match=why):
        TrainerNames(read_model(name))


@pytest.mark.parametrize("name", NAMED)
def test_every_tensor_lies_in_exactly_one_parameter(name: str) -> None:
    """Of each catalogued model, experts as ranges, and no parameter holds anything else."""
    graph = find_model(name)
    assert graph is not None
    held = Counter(
        (template, parameter.experts)
        for parameter in TrainerNames(graph).parameters
        for member in parameter.members
        for template in member.names
    )
    assert held == Counter(map(held_as, in_trainer(graph)))


def in_trainer(graph: ModelGraph) -> list[Tensor]:
    """The tensors of the language model; a trainer's GPTModel has no towers."""
    return [tensor for tensor in graph.tensors if tensor.outer not in (Role.VISION, Role.AUDIO)]


def held_as(tensor: Tensor) -> tuple[str, range | None]:
    """The name of a tensor with `{e}` for an expert, and which experts; those of a stack are its slices."""
    name = ".".join((*tensor.path, tensor.parameter) if tensor.parameter else tensor.path)
    if tensor.stacked or (Role.ROUTED_EXPERTS in tensor.within and tensor.experts is None):
        return f"{name}[{{e}}]", range(tensor.shape[0])
    return name, tensor.experts


@pytest.mark.parametrize("name", NAMED)
def test_parameters_hold_as_many_elements_as_the_model(name: str) -> None:
    """Copies, which an MTP layer and a tied head store anew, counted once."""
    graph = find_model(name)
    assert graph is not None
    copies = [t for t in graph.tensors if (t.mtp is not None and t.part in ("embed", "head")) or t.tied_to]
    once = sum(t.parameters for t in in_trainer(graph)) - sum(tensor.parameters for tensor in copies)
    assert sum(parameter.elements for parameter in TrainerNames(graph).parameters) == once


@cache
def names_of(family: str) -> TrainerNames:
    """The names of a small model."""
    return TrainerNames(model(family))


@st.composite
def places(draw: st.DrawFn) -> Place:
    """A parameter of a small model of any family."""
    names = names_of(draw(st.sampled_from(FAMILIES)))
    parameter = draw(st.sampled_from(names.parameters))
    return Place(parameter, None if parameter.experts is None else draw(st.sampled_from(parameter.experts)))


@given(places(), st.integers(0, 2**32))
def test_a_parameter_comes_back_from_the_checkpoint_as_it_was(place: Place, seed: int) -> None:
    """The trainer's random tensor, taken apart and put together again, bit for bit."""
    tensor = torch.randn(place.parameter.shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)
    if place.parameter.members[0].centred:
        tensor = (tensor.clamp(-2, 2) * 32).round() / 128  # one more has as few bits
    apart = dict(to_huggingface(place, tensor))
    assert set(apart) == set(place.names())
    assert all(part.is_contiguous() for part in apart.values())
    assert torch.equal(to_megatron(place, apart), tensor)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_has_the_shape_that_the_graph_says(family: str) -> None:
    """Each tensor of the checkpoint comes out of one parameter, in its own shape."""
    names, graph = names_of(family), model(family)
    made: dict[str, tuple[int, ...]] = {}
    for place in names.places():
        for name, tensor in to_huggingface(place, torch.zeros(place.parameter.shape)):
            assert name not in made
            made[name] = tuple(tensor.shape)
            assert names.holding(name).key == place.key
    wanted = dict(shape for tensor in in_trainer(graph) for shape in shapes(tensor))
    assert made == wanted


def shapes(tensor: Tensor) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The names and shapes of a tensor as it is handed over; a stack of experts comes in slices."""
    name, experts = held_as(tensor)
    for expert in experts or (0,):
        yield name.replace("{e}", str(expert)), tensor.shape[1:] if "[" in name else tensor.shape


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_spelling_is_read(family: str, spelling: Spelling) -> None:
    """Grouped or sequential experts, fused or separate norms, either MTP block: one place, whoever wrote the name."""
    reader, writer = names_of(family), TrainerNames(model(family), spelling)
    written = [writer.written(place) for place in writer.places()]
    assert len(set(written)) == len(written)
    assert [reader.place(name).key for name in written] == [place.key for place in writer.places()]


# --- the values, where they are known by construction ------------------------------------------------


def test_query_groups_are_taken_apart_row_by_row() -> None:
    """Two groups of two query heads: rows q0 q1 k0 v0 q2 q3 k1 v1, each head 32 rows of its own number."""
    place = names_of("qwen3").place("decoder.layers.1.self_attention.linear_qkv.weight")
    heads = torch.tensor([0.0, 1.0, 10.0, 20.0, 2.0, 3.0, 11.0, 21.0])
    fused = heads.repeat_interleave(32)[:, None].expand(-1, 128)
    apart = {name.split(".")[-2]: tensor[::32, 0].tolist() for name, tensor in to_huggingface(place, fused)}
    assert apart == {"q_proj": [0.0, 1.0, 2.0, 3.0], "k_proj": [10.0, 11.0], "v_proj": [20.0, 21.0]}


def test_a_bias_is_taken_apart_as_its_weight() -> None:
    """The same groups along its one axis."""
    place = names_of("qwen2").place("decoder.layers.0.self_attention.linear_qkv.bias")
    heads = torch.tensor([0.0, 1.0, 10.0, 20.0, 2.0, 3.0, 11.0, 21.0]).repeat_interleave(32)
    apart = {name.split(".")[-2]: tensor[::32].tolist() for name, tensor in to_huggingface(place, heads)}
    assert apart == {"q_proj": [0.0, 1.0, 2.0, 3.0], "k_proj": [10.0, 11.0], "v_proj": [20.0, 21.0]}


def test_stacked_experts_leave_in_slices_in_the_order_of_the_checkpoint() -> None:
    """gpt-oss has input rows, and gate and up in turn; Llama 4 input rows, and gate before up; biases have one axis."""
    fused = torch.cat([torch.zeros(256, 128), torch.ones(256, 128)])
    place = names_of("gpt_oss").place("decoder.layers.1.mlp.experts.linear_fc1.weight3")
    ((name, matrix),) = to_huggingface(place, fused)
    assert name == "model.layers.1.mlp.experts.gate_up_proj[3]"
    assert matrix[0].tolist() == [0.0, 1.0] * 256
    bias = names_of("gpt_oss").place("decoder.layers.1.mlp.experts.linear_fc1.bias3")
    ((name, vector),) = to_huggingface(bias, fused[:, 0])
    assert (name, vector.tolist()) == ("model.layers.1.mlp.experts.gate_up_proj_bias[3]", [0.0, 1.0] * 256)
    place = names_of("llama4").place("decoder.layers.1.mlp.experts.linear_fc1.weight3")
    ((name, matrix),) = to_huggingface(place, fused)
    assert name == "language_model.model.layers.1.feed_forward.experts.gate_up_proj[3]"
    assert matrix[0].tolist() == [0.0] * 256 + [1.0] * 256


def test_sinks_and_the_bias_of_a_router_have_names() -> None:
    """Megatron-Core keeps sinks as the offset of its softmax."""
    names = names_of("gpt_oss")
    wanted = {"self_attn.sinks": "self_attention.core_attention.softmax_offset", "mlp.router.bias": "mlp.router.bias"}
    for stored, held in wanted.items():
        assert names.written(names.holding(f"model.layers.0.{stored}")) == f"decoder.layers.0.{held}"


@pytest.mark.parametrize("family, gate, up", [("qwen3_moe", "gate_proj", "up_proj"), ("mixtral", "w1", "w3")])
def test_gate_is_the_first_half_of_fc1(family: str, gate: str, up: str) -> None:
    """The rest is up, whatever a family calls them."""
    place = names_of(family).place("decoder.layers.1.mlp.experts.linear_fc1.weight3")
    rows = place.parameter.members[0].rows
    fused = torch.cat([torch.zeros(rows, 128), torch.ones(rows, 128)])
    apart = {name.split(".")[-2]: tensor.unique().tolist() for name, tensor in to_huggingface(place, fused)}
    assert apart == {gate: [0.0], up: [1.0]}
    assert all(".experts.3." in name for name in place.names())


def test_an_mtp_layer_gets_copies_of_embedding_and_head() -> None:
    """Megatron shares them with the model; the checkpoint stores them twice."""
    names = names_of("deepseek_v3")
    assert list(names.place("output_layer.weight").names()) == [
        "model.layers.2.shared_head.head.weight",
        "lm_head.weight",
    ]
    embedding = names.place("embedding.word_embeddings.weight")
    first, second = embedding.names()
    with pytest.raises(CopiesDiffer, match=f"`{second}` and `{first}` are one parameter"):
        to_megatron(embedding, {first: torch.zeros(128, 128), second: torch.ones(128, 128)})


def test_a_padded_vocabulary_is_cut_and_filled() -> None:
    """The rows that the trainer adds are not in the checkpoint; on the way back they are zero."""
    place = TrainerNames(model("llama"), vocabulary_rows=192).place("output_layer.weight")
    (name, tensor), *_ = to_huggingface(place, torch.ones(192, 128))
    assert (name, tuple(tensor.shape)) == ("lm_head.weight", (128, 128))
    back = to_megatron(place, {name: tensor})
    assert back.sum(dim=1).tolist() == [128.0] * 128 + [0.0] * 64


def test_a_padded_vocabulary_that_nobody_announced_is_refused() -> None:
    """The message says how to announce it."""
    place = names_of("llama").place("output_layer.weight")
    with pytest.raises(WrongShape, match=r"has shape \[192, 128\], in this model \[128, 128\]; .*`vocabulary_rows`"):
        list(to_huggingface(place, torch.ones(192, 128)))
    with pytest.raises(ValueError, match="a padded vocabulary of 64 rows is smaller than the model's, 128"):
        TrainerNames(model("llama"), vocabulary_rows=64)


@given(places(), st.sampled_from([1, 2]), st.integers(0, 2**32))
def test_tensor_parallel_shards_are_gathered(place: Place, ranks: int, seed: int) -> None:
    """Each rank holds its share of every member: of gate and of up, not of the two end to end."""
    parameter = place.parameter
    assume(not (parameter.sections or any(member.regrouping or member.centred for member in parameter.members)))
    tensor = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    weights = list(tensor.chunk(parameter.parts)) if parameter.stacking else own_weights(place, tensor)
    axis = {"column": 0, "row": 1, None: None}[parameter.parallel]
    if axis == 1 and not parameter.rest:
        axis = None
    shards = []
    for rank in range(ranks):
        members = [weight if axis is None else weight.chunk(ranks, axis)[rank] for weight in weights]
        groups = parameter.groups // ranks if parameter.groups > 1 else 1
        pieces = [member.reshape(groups, -1, *member.shape[1:]) for member in members]
        shards.append(torch.cat(pieces, dim=1).flatten(0, 1))
    assert torch.equal(gather(place, shards), tensor)


@pytest.mark.parametrize("family", ["qwen3_next", "qwen3_5"])
@pytest.mark.parametrize("word, sections", [("in_proj", (64, 64, 64, 64, 4, 4)), ("conv1d", (64, 64, 64))])
def test_a_gated_delta_net_is_gathered_section_by_section(family: str, word: str, sections: tuple[int, ...]) -> None:
    """Each rank has its share of q, of k, of v and so on, one after the other, as its module splits them."""
    place = names_of(family).place(f"decoder.layers.0.self_attention.{word}.weight")
    whole = torch.arange(sum(sections) * 2.0).view(-1, 2).expand(place.parameter.shape[0], 2)
    parts = whole.split(list(sections))
    shards = [torch.cat([part.chunk(2)[rank] for part in parts]) for rank in range(2)]
    assert place.parameter.sections == sections
    assert torch.equal(gather(place, shards), whole)


def test_queries_and_gates_of_a_group_leave_head_by_head() -> None:
    """In the trainer a query group has the queries of its heads, their gates, its key and its value."""
    place = names_of("qwen3_next").place("decoder.layers.1.self_attention.linear_qkv.weight")
    labels = [
        f"{kind}{group}{head}" for group in range(2) for kind in ("q", "g", "k", "v") for head in range(_OF[kind])
    ]
    rows = torch.arange(len(labels)).repeat_interleave(32)[:, None].expand(-1, 128)
    apart = dict(to_huggingface(place, rows))
    order = [labels[int(row)] for row in apart["model.layers.1.self_attn.q_proj.weight"][::32, 0]]
    assert order == ["q00", "g00", "q01", "g01", "q10", "g10", "q11", "g11"]


_OF = {"q": 2, "g": 2, "k": 1, "v": 1}


def test_the_norm_of_a_gated_delta_net_is_one_more_in_the_checkpoint() -> None:
    """Of all norms it alone; in FP32 where the checkpoint has that, so that nothing is rounded."""
    trained = torch.tensor([2.0**-9] * 16, dtype=torch.bfloat16)
    for family, name in (("qwen3_next", "model"), ("qwen3_5", "model.language_model")):
        place = names_of(family).place("decoder.layers.0.self_attention.out_norm.weight")
        ((stored, value),) = to_huggingface(place, trained)
        assert stored == f"{name}.layers.0.linear_attn.norm.weight"
        assert value.dtype is {"qwen3_next": torch.bfloat16, "qwen3_5": torch.float32}[family]
        assert value[0].item() == {"qwen3_next": 1.0, "qwen3_5": 1 + 2.0**-9}[family]
    centred = [p.name for p in names_of("qwen3_next").parameters if p.members[0].centred]
    assert centred == ["decoder.layers.0.self_attention.out_norm.weight"]


def test_query_groups_that_do_not_divide_into_ranks_are_refused() -> None:
    """Two groups over three ranks: Megatron has a layout of its own for that."""
    place = names_of("qwen3").place("decoder.layers.0.self_attention.linear_qkv.weight")
    with pytest.raises(ValueError, match="2 query groups do not divide into 3 shards"):
        gather(place, [torch.zeros(1, 128)] * 3)


def own_weights(place: Place, tensor: torch.Tensor) -> list[torch.Tensor]:
    """The checkpoint's tensors in a parameter, in the order of its members."""
    apart = dict(to_huggingface(place, tensor))
    return [apart[member.names[0].replace("{e}", str(place.expert))] for member in place.parameter.members]


def test_what_is_not_split_may_not_differ_between_ranks() -> None:
    """A router that has drifted apart is no shard."""
    place = names_of("mixtral").place("decoder.layers.0.mlp.router.weight")
    with pytest.raises(CopiesDiffer, match=r"`decoder\.layers\.0\.mlp\.router\.weight` is not split, and differs"):
        gather(place, [torch.zeros(4, 128), torch.ones(4, 128)])


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, says",
    [
        (
            "module.decoder.layers.0.self_attention.linear_qkv.weight",
            "names come without wrappers; did you mean `decoder.layers.0.self_attention.linear_qkv.weight`",
        ),
        (
            "decoder.layers.1.mlp.experts.linear_fc1.weight4",
            "did you mean `decoder.layers.1.mlp.experts.linear_fc1.weight3`",
        ),
        (
            "decoder.layers.1.mlp.expert.linear_fc1.weight2",
            "did you mean `decoder.layers.1.mlp.experts.linear_fc1.weight2",
        ),
        (
            "model.layers.1.mlp.experts.2.gate_porj.weight",
            "did you mean `model.layers.1.mlp.experts.2.gate_proj.weight`",
        ),
        ("decoder.layers.2.self_attention.linear_qkv.weight", "did you mean"),
        ("decoder.layers.1.mlp.experts.linear_fc1.weight", "did you mean"),
        ("nothing", "`nothing` is no parameter of this model"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, says: str) -> None:
    """Wrappers, experts and layers that the model does not have, typing errors."""
    with pytest.raises(UnknownName) as refused:
        names_of("qwen3_moe").place(name)
    assert says in str(refused.value)


def test_a_tied_head_is_the_embedding() -> None:
    """Megatron's last stage holds a copy of it, which nobody needs."""
    with pytest.raises(UnknownName, match=r"tied to its embedding: leave this copy out"):
        names_of("qwen2").place("output_layer.weight")


def test_a_tensor_of_another_shape_is_refused() -> None:
    """A shard that was not gathered, for one."""
    place = names_of("qwen3").place("decoder.layers.0.mlp.linear_fc2.weight")
    with pytest.raises(
        WrongShape, match=r"has shape \[128, 128\], in this model \[128, 256\]; gather its shards first"
    ):
        list(to_huggingface(place, torch.zeros(128, 128)))


def test_names_need_no_torch() -> None:
    """Which parameter holds a tensor can be asked anywhere."""
    code = (
        "import sys; from precc.graph.catalogue import find_model; from precc_converter.trainer import TrainerNames; "
        "TrainerNames(find_model('deepseek-v3')).place('output_layer.weight'); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
