"""What the tables say about single tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

import precc.graph.families
from precc.graph import EXPERT, ModelGraph, Tensor, catalogue, read_model, vocabulary
from precc.graph.families import families
from precc.syntax.words import Role

V3 = "deepseek-v3"
ALL = ["qwen3-30b-a3b", "qwen2.5-7b", "llama-3.1-8b", "mixtral-8x7b", V3, "deepseek-v3.2", "glm-4.5-air"]


def tensor(model: str, name: str) -> Tensor:
    """The one tensor of that stored name, the expert written `{e}`."""
    found = [t for t in read_model(model).tensors if ".".join((*t.path, t.parameter)).rstrip(".") == name]
    assert len(found) == 1, name
    return found[0]


@pytest.mark.parametrize(
    "model, name, role, within, part",
    [
        (V3, "model.layers.4.self_attn.kv_b_proj.weight", Role.MLA, {Role.ATTENTION}, "kv_b"),
        (V3, "model.layers.4.self_attn.q_a_proj.weight", Role.ATTENTION, set(), "q_a"),
        (V3, "model.layers.4.self_attn.q_b_proj.weight", Role.ATTENTION, set(), "q_b"),
        (V3, "model.layers.4.self_attn.kv_a_proj_with_mqa.weight", Role.ATTENTION, set(), "kv_a"),
        (V3, "model.layers.4.self_attn.o_proj.weight", Role.ATTENTION, set(), "o"),
        (V3, "model.layers.4.mlp.gate.weight", Role.ROUTER, set(), "router"),
        (V3, "model.layers.4.mlp.gate.e_score_correction_bias", Role.ROUTER, set(), "bias"),
        (V3, "model.layers.4.mlp.experts.{e}.up_proj.weight", Role.ROUTED_EXPERTS, set(), "up"),
        (V3, "model.layers.4.mlp.shared_experts.up_proj.weight", Role.SHARED_EXPERTS, set(), "up"),
        (V3, "model.layers.0.mlp.up_proj.weight", Role.DENSE_MLP, set(), "up"),
        (V3, "model.layers.61.self_attn.kv_b_proj.weight", Role.MLA, {Role.ATTENTION, Role.MTP}, "kv_b"),
        (V3, "model.layers.61.eh_proj.weight", None, {Role.MTP}, "fc"),
        (V3, "model.layers.61.shared_head.head.weight", Role.LM_HEAD, {Role.MTP}, "head"),
        ("deepseek-v3.2", "model.layers.4.self_attn.indexer.wk.weight", Role.INDEXER, {Role.ATTENTION}, "wk"),
        ("qwen2.5-7b", "model.layers.4.self_attn.q_proj.bias", None, {Role.ATTENTION}, "bias"),
        ("qwen2.5-7b", "model.layers.4.input_layernorm.weight", Role.NORM, set(), "norm"),
        (
            "mixtral-8x7b",
            "model.layers.4.block_sparse_moe.experts.{e}.w3.weight",
            Role.ROUTED_EXPERTS,
            set(),
            "up",
        ),
    ],
)
def test_a_tensor_has_its_role_and_what_it_is_within(
    model: str, name: str, role: Role | None, within: set[Role], part: str
) -> None:
    """Roles are those of the language, whatever the architecture's names."""
    found = tensor(model, name)
    assert (found.role, found.within, found.part) == (role, within, part)


@pytest.mark.parametrize("model", ALL)
def test_protected_are_exactly_the_tensors_that_engines_keep_high(model: str) -> None:
    """What is not protected is a GEMM of attention, an MLP, an expert or the indexer, and nothing else is."""
    low = {"q", "k", "v", "o", "q_a", "q_b", "kv_a", "kv_b", "gate", "up", "down", "wq_b", "wk"}
    for found in read_model(model).tensors:
        assert found.protected is (found.part not in low), found.name
        assert found.protected or found.is_gemm


@pytest.mark.parametrize(
    "model, name, contracted",
    [
        (V3, "model.layers.4.self_attn.kv_b_proj.weight", (0, 1)),
        (V3, "model.layers.4.self_attn.o_proj.weight", (1,)),
        (V3, "model.embed_tokens.weight", ()),
        (V3, "lm_head.weight", (1,)),
        (V3, "model.layers.4.mlp.gate.weight", (1,)),
        (V3, "model.norm.weight", ()),
        ("qwen2.5-7b", "model.layers.4.self_attn.q_proj.bias", ()),
    ],
)
def test_a_tensor_knows_the_axes_it_is_contracted_along(model: str, name: str, contracted: tuple[int, ...]) -> None:
    """Absorbed MLA contracts `kv_b_proj` along both axes; a lookup contracts none."""
    assert tensor(model, name).contracted == contracted


@pytest.mark.parametrize(
    "model, name, parallel",
    [
        (V3, "model.embed_tokens.weight", "column"),
        (V3, "lm_head.weight", "column"),
        (V3, "model.layers.4.self_attn.q_b_proj.weight", "column"),
        (V3, "model.layers.4.self_attn.q_a_proj.weight", None),
        (V3, "model.layers.4.self_attn.kv_a_proj_with_mqa.weight", None),
        (V3, "model.layers.4.self_attn.o_proj.weight", "row"),
        (V3, "model.layers.4.mlp.experts.{e}.down_proj.weight", "row"),
        (V3, "model.layers.4.mlp.gate.weight", None),
        (V3, "model.layers.61.eh_proj.weight", None),
        ("deepseek-v2-lite", "model.layers.4.self_attn.q_proj.weight", "column"),
        ("deepseek-v3.2", "model.layers.4.self_attn.indexer.wq_b.weight", None),
    ],
)
def test_a_tensor_knows_how_it_is_split(model: str, name: str, parallel: str | None) -> None:
    """By output rows, by input columns, or on every rank whole."""
    assert tensor(model, name).parallel == parallel


def groups(model: str, engine: str) -> dict[str, set[str]]:
    """The last components of the members of each fused GEMM of layer 4."""
    found: dict[str, set[str]] = {}
    for member in read_model(model).tensors:
        for named, group in member.fused:
            if named == engine and member.layer == 4:
                found.setdefault(group.removeprefix("model.layers.4."), set()).add(member.path[-1])
    return found


def test_megatron_fuses_what_its_modules_hold() -> None:
    """q, k and v; gate and up; each of the two GEMMs of all routed experts."""
    assert groups("glm-4.5-air", "megatron") == {
        "self_attn.qkv": {"q_proj", "k_proj", "v_proj"},
        "mlp.experts.fc1": {"gate_proj", "up_proj"},
        "mlp.experts.fc2": {"down_proj"},
        "mlp.shared_experts.gate_up": {"gate_proj", "up_proj"},
    }


def test_sglang_fuses_all_projections_of_the_routed_experts() -> None:
    """Its fused expert layer has one method; latent projections are fused where queries have a rank."""
    assert groups(V3, "sglang") == {
        "self_attn.qkv_a": {"q_a_proj", "kv_a_proj_with_mqa"},
        "mlp.experts": {"gate_proj", "up_proj", "down_proj"},
        "mlp.shared_experts.gate_up": {"gate_proj", "up_proj"},
    }
    assert "self_attn.qkv_a" not in groups("deepseek-v2-lite", "sglang")


def test_gate_and_up_of_one_expert_share_an_outer_scale() -> None:
    """The group is the expert's own, so its name holds the expert's place; down stands alone."""
    gate = tensor(V3, "model.layers.4.mlp.experts.{e}.gate_proj.weight")
    assert gate.scale_group == "model.layers.4.mlp.experts.{e}.gate_up"
    assert tensor(V3, "model.layers.4.mlp.experts.{e}.up_proj.weight").scale_group == gate.scale_group
    assert tensor(V3, "model.layers.4.mlp.experts.{e}.down_proj.weight").scale_group is None
    qkv = [tensor("qwen3-8b", f"model.layers.4.self_attn.{part}_proj.weight").scale_group for part in "qkv"]
    assert qkv == ["model.layers.4.self_attn.qkv"] * 3


def test_an_mtp_layer_is_no_decoder_layer() -> None:
    """It has no layer number, an MTP number, its own subtree, and protection beside that of its parts."""
    graph = read_model(V3)
    ahead = [t for t in graph.tensors if t.mtp == 0]
    assert {t.path[:3] for t in ahead} == {("model", "layers", "61")}
    assert {(t.layer, t.outer, t.outer_depth) for t in ahead} == {(None, Role.MTP, 3)}
    assert all(t.has_role(Role.MTP) for t in ahead)
    assert tensor(V3, "model.layers.61.eh_proj.weight").protected
    assert not tensor(V3, "model.layers.61.self_attn.o_proj.weight").protected
    assert (graph.layers, graph.mtp_layers) == (61, 1)


def test_layers_are_the_global_decoder_layers() -> None:
    """Every layer of the model is there, and what stands outside has none."""
    graph = read_model("qwen3-30b-a3b")
    assert {t.layer for t in graph.tensors} == {None, *range(48)}
    assert [t.name for t in graph.tensors if t.layer is None] == [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    ]


def dtypes(graph: ModelGraph) -> dict[str, set[str]]:
    """Stored dtypes, with the last components that have them."""
    found: dict[str, set[str]] = {}
    for stored in graph.tensors:
        found.setdefault(stored.dtype, set()).add(stored.path[-1])
    return found


def test_an_fp8_release_keeps_its_known_exceptions_high() -> None:
    """DeepSeek-V3.2: BF16 and FP32 are exactly what the release stores so."""
    found = dtypes(read_model("deepseek-v3.2"))
    assert found["fp32"] == {
        "e_score_correction_bias",
        "k_norm",
        "input_layernorm",
        "post_attention_layernorm",
    }
    assert found["bf16"] == {
        *("embed_tokens", "lm_head", "head", "norm", "gate", "eh_proj", "enorm", "hnorm", "weights_proj"),
        *("q_a_layernorm", "kv_a_layernorm"),
    }
    blocks = {t.stored_block for t in read_model("deepseek-v3.2").tensors if t.dtype == "fp8"}
    assert blocks == {(128, 128)}


def test_an_fp8_release_of_qwen_keeps_router_and_head_high() -> None:
    """Its list of unconverted modules is what protection says anyway."""
    found = dtypes(read_model("qwen3-30b-a3b-fp8"))
    assert {"gate", "lm_head", "embed_tokens"} <= found["bf16"]
    assert found["fp8"] == {*("q_proj", "k_proj", "v_proj", "o_proj"), *("gate_proj", "up_proj", "down_proj")}


def test_a_stored_head_that_is_tied_says_so() -> None:
    """Qwen3-0.6B stores its tied head, Qwen3-4B does not; an untied one is tied to nothing."""
    assert tensor("qwen3-0.6b", "lm_head.weight").tied_to == "model.embed_tokens"
    assert "lm_head.weight" not in {t.name for t in read_model("qwen3-4b").tensors}
    assert tensor("qwen3-8b", "lm_head.weight").tied_to is None


@pytest.mark.parametrize("name", catalogue())
def test_the_place_of_an_expert_is_one_object(name: str) -> None:
    """Paths are compared with `is`, so every `{e}` in a path has to be the constant."""
    for found in read_model(name).tensors:
        assert (found.experts is not None) is any(part is EXPERT for part in found.path)
        assert not any(part == EXPERT and part is not EXPERT for part in found.path)


def test_the_config_holds_what_engines_ask_for() -> None:
    """One name for each fact in every family, and only those that the family has."""
    v3, qwen = read_model(V3).config, read_model("qwen3-30b-a3b").config
    assert (v3["num_experts"], v3["num_experts_per_tok"], v3["moe_intermediate_size"]) == (256, 8, 2048)
    assert (v3["first_k_dense_replace"], v3["moe_layers"][0], len(v3["moe_layers"])) == (3, 3, 58)
    assert (v3["kv_lora_rank"], v3["shared_expert_intermediate_size"]) == (512, 2048)
    assert (v3["quantization"], qwen["quantization"]) == ("fp8_block", None)
    assert (v3["num_mtp_layers"], v3["torch_dtype"]) == (1, "bf16")
    assert (qwen["head_dim"], qwen["use_qk_norm"], qwen["num_key_value_heads"]) == (128, True, 4)
    assert "head_dim" not in v3
    assert "kv_lora_rank" not in qwen


def test_the_vocabulary_knows_every_kind_of_tensor_once() -> None:
    """Each family's rows, at layer 0 and expert 0, without doubles."""
    known = vocabulary()
    assert len({(t.path, t.parameter) for t in known}) == len(known)
    names = {t.name for t in known}
    assert {
        "model.layers.0.self_attn.kv_b_proj.weight",
        "model.layers.0.block_sparse_moe.experts.0.w1.weight",
        "model.layers.0.self_attn.indexer.weights_proj.weight",
        "model.layers.1.eh_proj.weight",
        "model.layers.0.mlp.gate.e_score_correction_bias",
        "lm_head.weight",
    } <= names
    assert {t.layer for t in known} == {None, 0}


def test_every_module_in_the_folder_that_is_a_family_is_found() -> None:
    """Adding a family is adding a module: nothing lists them."""
    folder = Path(precc.graph.families.__file__).parent
    written = [path.stem for path in folder.glob("*.py") if "\nFAMILY = " in path.read_text()]
    assert [family.name for family in families()] == sorted(written)
    assert len(written) >= 11


def test_only_some_layers_of_glm_5_2_have_an_indexer() -> None:
    """The first three, then every fourth, and the MTP layer; each layer of GLM-5 has one."""
    graph = read_model("glm-5.2")
    having = {t.layer for t in graph.tensors if t.role is Role.INDEXER}
    assert having == {None, 0, 1, 2, *range(6, 78, 4)}
    assert len({t.layer for t in read_model("glm-5").tensors if t.role is Role.INDEXER}) == 79
    wq_b = tensor("glm-5.2", "model.layers.6.self_attn.indexer.wq_b.weight")
    assert (wq_b.part, wq_b.within, wq_b.shape) == ("wq_b", {Role.ATTENTION}, (32 * 128, 2048))


def test_minimax_norms_all_heads_at_once_and_routes_in_fp32() -> None:
    """Its query norm is as wide as all queries; no tensor of its router is BF16, whatever the other weights are."""
    attention = "model.layers.4.self_attn"
    assert tensor("minimax-m2", f"{attention}.q_norm.weight").shape == (48 * 128,)
    assert tensor("minimax-m2", f"{attention}.k_norm.weight").shape == (8 * 128,)
    router = [t for t in read_model("minimax-m2").tensors if t.role is Role.ROUTER and t.layer == 4]
    assert {(t.part, t.path[-1], t.dtype) for t in router} == {
        ("router", "gate", "fp32"),
        ("bias", "e_score_correction_bias", "fp32"),
    }


def test_kimi_k2_5_is_kimi_k2_below_a_prefix_beside_a_tower() -> None:
    """The same roles, parts and shapes; only routed experts are stored as integers, and nothing of the tower is."""

    def rows(name: str, root: str) -> set[object]:
        found = (t for t in read_model(name).tensors if t.outer is None)
        return {(".".join(t.path).removeprefix(root), t.shape, t.role, t.part, t.layer) for t in found}

    assert rows("kimi-k2.5", "language_model.") == rows("kimi-k2", "")
    tensors = read_model("kimi-k2.5").tensors
    assert {t.role for t in tensors if t.form.format == "int4"} == {Role.ROUTED_EXPERTS}
    tower = {t.path[0] for t in tensors if t.outer is Role.VISION}
    assert tower == {"vision_tower", "mm_projector"}


@pytest.mark.parametrize("name", ["gpt-oss-20b-bf16", "deepseek-v2-lite", "qwen3-next-80b-a3b", "qwen3-30b-a3b"])
def test_the_full_names_of_a_tensor_are_those_of_an_index(name: str) -> None:
    """One for each expert; a bare parameter (a stack of experts, `A_log`, sinks) has no dot at its end."""
    graph = read_model(name)
    names = [full for tensor in graph.tensors for full in tensor.names()]
    assert len(names) == len(set(names)) == graph.stored_tensors
    assert not [full for full in names if full.endswith(".") or EXPERT in full or "{" in full]
    assert set(names) >= {tensor.name for tensor in graph.tensors if tensor.experts is None}
