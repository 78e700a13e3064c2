"""Recognition of profiles by common names, templates and architectures, and their precedence."""

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.profiles.files import load_profiles
from proxy.profiles.profile import GENERIC, Matching, Profile
from proxy.profiles.recognition import Evidence, candidates, recognize
from tests.fakes.arrivals import is_bounded

PROFILES = load_profiles()

NAMES = {
    "qwen2.5": [
        "Qwen/Qwen2.5-7B-Instruct",
        "qwen2.5-14b-instruct-q5_k_m.gguf",
        "qwen2.5:7b",
        "bartowski/Qwen2.5-32B-Instruct-GGUF",
        "qwen2:7b",
        "Qwen2-57B-A14B-Instruct",
    ],
    "qwen2.5-coder": [
        "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF",
        "qwen2.5-coder:14b",
        "Qwen2.5-Coder-32B-Instruct-Q4_K_M.gguf",
    ],
    "qwen3": [
        "qwen3:8b",
        "Qwen/Qwen3-30B-A3B",
        "Qwen3-14B-Q4_K_M.gguf",
        "Qwen_Qwen3-8B-Q4_K_M.gguf",
        "hf.co/unsloth/Qwen3-4B-GGUF:Q4_K_M",
        "Qwen3 8B",
        "mradermacher/Huihui-Qwen3-14B-abliterated-GGUF",
        r"C:\models\Qwen3-8B-Q8_0.gguf",
        "/models/qwen3-8b/model.gguf",
    ],
    "qwen3-instruct-2507": [
        "Qwen/Qwen3-4B-Instruct-2507",
        "unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF",
        "qwen3:4b-instruct-2507-q4_K_M",
        "qwen/qwen3-4b-2507-instruct",
    ],
    "qwen3-vl": ["Qwen/Qwen3-VL-8B-Instruct", "qwen3-vl:8b"],
    "qwen3-coder": [
        "Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf",
        "qwen3-coder:30b",
        "qwen/qwen3-coder-30b",
        "Qwen3-Coder-480B-A35B-Instruct",
    ],
    "qwen3-coder-next": ["Qwen/Qwen3-Coder-Next-GGUF", "qwen3-coder-next:q4_K_M"],
    "qwen3-next": ["Qwen/Qwen3-Next-80B-A3B-Instruct", "qwen3-next:80b"],
    "qwen3.5": ["Qwen/Qwen3.5-35B-A3B", "qwen3.5:9b", "Qwen3.6-27B-UD-Q4_K_XL.gguf"],
    "qwen3.8": [
        "Qwen/Qwen3.8-27B",
        "qwen3.8:27b",
        "Qwen3.8-27B-UD-Q6_K.gguf",
        "Qwen/Qwen3.8-Flash-Next",
    ],
    "qwq": ["Qwen/QwQ-32B-GGUF", "qwq:32b"],
    "hermes": [
        "NousResearch/Hermes-3-Llama-3.1-8B",
        "Hermes-3-Llama-3.2-3B.Q4_K_M.gguf",
        "hermes3:8b",
        "NousResearch/Hermes-2-Pro-Mistral-7B-GGUF",
        "Hermes-2-Pro-Llama-3-8B-Q4_K_M.gguf",
    ],
    "hermes-4": ["NousResearch/Hermes-4-14B", "bartowski/NousResearch_Hermes-4-70B-GGUF"],
    "llama3": [
        "meta-llama/Llama-3.1-8B-Instruct",
        "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        "llama3.1:8b",
        "llama3.2:3b",
        "Llama-3.3-70B-Instruct-GGUF",
        "Meta Llama 3.1 8B Instruct",
    ],
    "llama3.0": ["meta-llama/Meta-Llama-3-8B-Instruct", "llama3:8b"],
    "llama4": ["meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4:scout"],
    "mistral": [
        "mistralai/Mistral-7B-Instruct-v0.3",
        "mistral:7b",
        "mistral",
        "Mixtral-8x7B-Instruct-v0.1.Q4_K_M.gguf",
    ],
    "mistral-nemo": ["mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo:12b"],
    "mistral-small": [
        "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        "Mistral-Small-24B-Instruct-2501-Q4_K_M.gguf",
        "mistral-small3.2:24b",
    ],
    "mistral-large": ["mistralai/Mistral-Large-Instruct-2411"],
    "magistral": ["mistralai/Magistral-Small-2509", "magistral:24b"],
    "devstral": ["mistralai/Devstral-Small-2507_gguf", "devstral:24b", "mistralai/devstral-2512"],
    "ministral": ["mistralai/Ministral-3-8B-Instruct-2512", "ministral-3:8b"],
    "ministral-reasoning": ["Ministral-3-14B-Reasoning-2512-Q4_K_M.gguf"],
    "gemma2": ["google/gemma-2-9b-it", "gemma-2-27b-it-Q4_K_M.gguf", "gemma2:9b"],
    "gemma3": [
        "hf.co/unsloth/gemma-3-12b-it-GGUF:Q4_K_M",
        "gemma3:4b",
        "google/gemma-3-27b-it-qat-q4_0-gguf",
        "medgemma-27b-text-it-Q4_K_M.gguf",
        "gemma3",
    ],
    "gemma3n": ["google/gemma-3n-E4B-it", "gemma3n:e4b"],
    "functiongemma": ["google/functiongemma-270m-it", "functiongemma:270m"],
    "gemma4": ["google/gemma-4-31B-it", "gemma4:26b", "gemma-4-E4B-it-Q4_K_M.gguf"],
    "phi-4": ["microsoft/phi-4", "phi4:14b", "phi-4-Q4_K_M.gguf"],
    "phi-4-reasoning": ["microsoft/Phi-4-reasoning-plus", "phi4-reasoning:14b"],
    "phi-4-mini": ["microsoft/Phi-4-mini-instruct", "phi4-mini:3.8b"],
    "phi-3": ["microsoft/Phi-3.5-mini-instruct", "phi3:mini"],
    "gpt-oss": ["openai/gpt-oss-20b", "gpt-oss:20b", "ggml-org/gpt-oss-120b-GGUF"],
    "granite3": ["ibm-granite/granite-3.3-8b-instruct", "granite3.3:8b", "granite3-dense:8b"],
    "granite4": ["ibm-granite/granite-4.0-h-tiny-GGUF", "granite4:micro-h"],
    "deepseek-r1": [
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
        "DeepSeek-R1-Distill-Llama-8B-Q4_K_M.gguf",
        "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
        "deepseek-r1:14b",
    ],
    "deepseek-v3": ["deepseek-ai/DeepSeek-V3-0324"],
    "deepseek-v3.1": ["deepseek-ai/DeepSeek-V3.1", "deepseek-v3.1:671b"],
    "deepseek-v3.2": ["deepseek-ai/DeepSeek-V3.2"],
    "glm-4": ["zai-org/GLM-4-32B-0414", "glm4:9b"],
    "glm-4.5": ["zai-org/GLM-4.5-Air", "unsloth/GLM-4.6-GGUF"],
    "glm-4.7": ["zai-org/GLM-4.7-Flash", "GLM-5-Q2_K.gguf"],
    "kimi-k2": ["moonshotai/Kimi-K2-Instruct-0905"],
    "kimi-k2-thinking": ["moonshotai/Kimi-K2-Thinking", "kimi-k2.5:cloud"],
    "kimi-k3": ["moonshotai/Kimi-K3"],
    "kimi-linear": ["moonshotai/Kimi-Linear-48B-A3B-Instruct"],
    "minimax-m2": ["MiniMaxAI/MiniMax-M2", "unsloth/MiniMax-M2.5-GGUF"],
    "nemotron3": ["nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano:30b"],
    "nemotron-nano-v2": ["nvidia/NVIDIA-Nemotron-Nano-9B-v2"],
    "llama-nemotron": [
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5",
        "nvidia/Llama-3.1-Nemotron-Nano-8B-v1",
    ],
    "command-r7b": ["CohereForAI/c4ai-command-r7b-12-2024", "command-a:111b"],
    "command-r": ["command-r:35b", "c4ai-command-r-plus-08-2024"],
    "lfm2": ["LiquidAI/LFM2-8B-A1B-GGUF"],
    "lfm2.5": ["LiquidAI/LFM2.5-1.2B-Instruct"],
    "smollm3": ["HuggingFaceTB/SmolLM3-3B", "ggml-org/SmolLM3-3B-GGUF"],
    "olmo3": ["allenai/Olmo-3-7B-Instruct", "olmo-3.1:32b"],
    "seed-oss": ["ByteDance-Seed/Seed-OSS-36B-Instruct"],
    "apertus": ["swiss-ai/Apertus-8B-Instruct-2509"],
    "hunyuan": ["tencent/Hunyuan-A13B-Instruct", "tencent/Hunyuan-7B-Instruct-GGUF"],
    "ernie4.5": ["baidu/ERNIE-4.5-21B-A3B-PT"],
    "exaone4": ["LGAI-EXAONE/EXAONE-4.0-32B-GGUF"],
    "falcon-h1": ["tiiuae/Falcon-H1-7B-Instruct"],
    "jamba": ["ai21labs/AI21-Jamba-Mini-1.7"],
    "internlm3": ["internlm/internlm3-8b-instruct-gguf", "internlm/internlm2_5-7b-chat"],
    "xlam": ["Salesforce/Llama-xLAM-2-8b-fc-r-gguf", "xLAM-2-3b-fc-r"],
    "toolace": ["Team-ACE/ToolACE-2-Llama-3.1-8B", "watt-ai/watt-tool-8B"],
    "functionary": ["meetkai/functionary-small-v3.2-GGUF"],
    "mimo": ["XiaomiMiMo/MiMo-7B-RL"],
    "mimo-v2": ["XiaomiMiMo/MiMo-V2-Flash"],
    "step3.5": ["stepfun-ai/Step-3.5-Flash"],
    "longcat": ["meituan-longcat/LongCat-Flash-Chat"],
    "gigachat": ["ai-sage/GigaChat3-10B-A1.8B"],
    "plamo": ["mmnga/plamo-2-8b-gguf"],
    "minicpm": ["openbmb/MiniCPM4-8B"],
    "kimi-k2.7": ["moonshotai/Kimi-K2.7-Code", "kimi-k2.7-code:cloud"],
    "glm-5.3-flash": ["zai-org/GLM-5.3-Flash", "GLM-5.3-Flash-UD-Q2_K_XL.gguf"],
    "solar-open2": ["upstage/Solar-Open2-250B", "solar_open2_250b.gguf"],
    "deepseek-v4": [
        "deepseek-ai/DeepSeek-V4-Flash",
        "deepseek-ai/DeepSeek-V4-Flash-0731",
        "deepseek-v4-pro",
    ],
    "deepseek-v4.1": ["deepseek-ai/DeepSeek-V4.1-Flash", "DeepSeek-V4.1-Flash-Q4_K_M.gguf"],
    "muse-glimmer": ["meta-models/Muse-Glimmer-30B", "unsloth/Muse-Glimmer-30B-GGUF"],
    "k2-horizon": ["IFM/K2-Horizon-7B", "K2-Horizon-MoVA-36B-A4B-Q4_K_M.gguf"],
    "hy4": ["tencent/Hy4-preview", "tencent_Hy4-preview-Q4_K_M.gguf"],
    "laguna": ["poolside/Laguna-XS.2", "poolside/Laguna-S-2.1", "laguna-xs.2:q4_K_M"],
    "ling3": ["inclusionAI/Ling-3.0-flash", "inclusionAI_Ling-3.0-tiny-Q8_0.gguf"],
    "spark-x2.5": ["XHToken/Spark-X2.5-1.7B", "Spark-X2.5-4B-Q8_0.gguf"],
    "cohere-north": [
        "CohereLabs/North-Mini-Code-1.0",
        "cohere-north-mini-code",
        "command-a-plus-05-2026",
    ],
    "inkling": ["thinkingmachines/Inkling", "unsloth/Inkling-Small-GGUF"],
    "ornith": ["ornith-ai/Ornith-1.5-9B-GGUF", "Ornith-1.5-35B-Q6_K.gguf", "ornith-1.5:35b-a3b"],
    "intern-s1": ["internlm/Intern-S1", "internlm/Intern-S1-mini-GGUF"],
    "mistral-medium-3.5": ["mistralai/Mistral-Medium-3.5-128B"],
    "mellum2": ["JetBrains/Mellum2-12B-A2.5B-Instruct", "Mellum2-12B-A2.5B-Thinking-Q8_0.gguf"],
    "trinity": ["arcee-ai/Trinity-Large-Thinking", "arcee-ai/Trinity-Mini-GGUF", "trinity-nano"],
    GENERIC.name: [
        "tinyllama-random",
        "my-model",
        "scripted",
        "default",
        "gpt-4o-mini",
        "model.gguf",
        "qwen",
        "llama",
        "gemma-7b-it",
        "embeddinggemma-300m",
        "granite-3b-code-instruct",
        "nomic-embed-text:v1.5",
        "codellama:13b",
        "sha256-6a0746a1ec1aef3e7ec53868f220ff6e389f6f8ef87a01d77c96807de94ca2aa",
        "",
    ],
}
TABLE = [(name, expected) for expected, names in NAMES.items() for name in names]

MISTRAL = "[INST][/INST]"
TEMPLATES = {
    "qwen2.5": "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud.<tool_call>",
    "qwen3": "<|im_start|> <tool_call> last_query_index reasoning_content",
    "qwen3-coder": "<|im_start|> <tool_call> <function= <parameter=",
    "qwen3.5": "<|im_start|> <tool_call> last_query_index reasoning_content <function= <parameter= "
    "<|vision_start|>",
    "qwen3.8": "<|im_start|> <tool_call> last_query_index reasoning_content <function= <parameter= "
    "<|vision_start|> preserve_thinking reasoning_instructions",
    "step3.5": "<|im_start|>tool_response <tool_call> last_query_index reasoning_content "
    "<function= <parameter=",
    "nemotron3": "<|im_start|> <tool_call> <function= <parameter= truncate_history_thinking",
    "hermes": "<|im_start|> You are a function calling AI model <tool_call>",
    "llama3": "<|start_header_id|> <|eot_id|> Environment: ipython",
    "llama3.0": "<|start_header_id|> <|eot_id|>",
    "mistral": MISTRAL,
    "mistral-nemo": f"{MISTRAL}[AVAILABLE_TOOLS][TOOL_CALLS]",
    "mistral-small": f"{MISTRAL}[AVAILABLE_TOOLS][TOOL_CALLS][SYSTEM_PROMPT]",
    "magistral": f"{MISTRAL}[AVAILABLE_TOOLS][TOOL_CALLS][SYSTEM_PROMPT][THINK]",
    "gemma2": "<start_of_turn> raise_exception('System role not supported')",
    "gemma3": "<start_of_turn> first_user_prefix",
    "gemma3n": "<start_of_turn> first_user_prefix <audio_soft_token>",
    "gemma4": "<|turn>user <turn|>",
    "deepseek-r1": "<｜User｜> <｜tool▁calls▁begin｜> </think>",  # noqa: RUF001
    "deepseek-v3.1": "<｜User｜> <｜tool▁calls▁begin｜> </think> thinking is defined",  # noqa: RUF001
    "deepseek-v3.2": "<｜User｜> ｜DSML｜ function_calls>",  # noqa: RUF001
    "deepseek-v4": "<｜User｜> ｜DSML｜ tool_calls> <tool_result>",  # noqa: RUF001
    "deepseek-v4.1": "<｜System｜> <｜User｜> ｜DSML｜ calls> <tool_result>",  # noqa: RUF001
    "glm-4.5": "[gMASK]<sop> <|observation|> <arg_key> <arg_value>",
    "glm-4.7": "[gMASK]<sop> <|observation|> <arg_key> <arg_value> clear_thinking",
    "glm-5.3-flash": "[gMASK]<sop> <|observation|> <arg_key> <arg_value> clear_thinking "
    "effective_reasoning_effort",
    "kimi-k2-thinking": "<|im_middle|> <|tool_call_begin|> suffix_msgs",
    "gpt-oss": "<|start|>assistant<|channel|>final<|message|>",
    "granite4": "<|start_of_role|> <|end_of_role|> <tool_call>",
    "muse-glimmer": "<|start|>assistant to=self<|message|> <|eom|> <atem:function_calls>",
    "k2-horizon": "<|ifm|im_start|> <ifm|tool_calls> <ifm|tool_call>",
    "laguna": "〈|EOS|〉 <available_tools> <tool_call> <arg_key>",
    "ling3": "<role>HUMAN</role> <|role_end|> <tool_call> <arg_key>",
    "spark-x2.5": "<｜start▁of▁sentence｜><|Bot|> <tool_call> <arg_key>",  # noqa: RUF001
    "command-r7b": "<|START_OF_TURN_TOKEN|> <|START_ACTION|>",
    "cohere-north": "<|START_OF_TURN_TOKEN|> <|START_ACTION|> <|START_TEXT|>",
    "inkling": "<|message_model|> <|content_invoke_tool_json|> <|end_message|>",
    GENERIC.name: "{% for message in messages %}{{ message.content }}{% endfor %}",
}

ARCHITECTURES = {
    "granitehybrid": "granite4",
    "qwen35": "qwen3.5",
    "qwen4exp": "qwen3.8",
    "glm5next": "glm-5.3-flash",
    "deepseek32": "deepseek-v3.2",
    "deepseek4": "deepseek-v4",
    "deepseek41": "deepseek-v4.1",
    "muse-glimmer": "muse-glimmer",
    "k2-horizon": "k2-horizon",
    "hy_v4": "hy4",
    "laguna": "laguna",
    "bailingmoe3": "ling3",
    "spark2_5": "spark-x2.5",
    "cohere2": "command-r7b",
    "cohere2moe": "cohere-north",
    "mellum": "mellum2",
    "afmoe": "trinity",
    "llama": GENERIC.name,
}


def recognized(name: str = "", architecture: str = "", template: str = "") -> str:
    return recognize(Evidence((name,), architecture, template), PROFILES).profile.name


def test_the_table_of_names_has_120_rows_and_every_profile() -> None:
    assert len(TABLE) >= 120
    assert {profile.name for profile in PROFILES} <= NAMES.keys()


@pytest.mark.parametrize(("name", "expected"), TABLE)
def test_models_are_recognized_by_common_names(name: str, expected: str) -> None:
    assert recognized(name) == expected


@pytest.mark.parametrize("name", [name for name, _ in TABLE])
def test_every_name_matches_one_profile_better_than_all_others(name: str) -> None:
    strengths = [candidate.strength for candidate in candidates(Evidence((name,)), PROFILES)]
    assert len(strengths) < 2 or strengths[0] > strengths[1]


@pytest.mark.parametrize("expected", TEMPLATES)
def test_a_renamed_file_is_recognized_by_its_chat_template(expected: str) -> None:
    evidence = Evidence(("model.gguf",), template=TEMPLATES[expected])
    strengths = [candidate.strength for candidate in candidates(evidence, PROFILES)]
    assert recognize(evidence, PROFILES).profile.name == expected
    assert len(set(strengths)) == len(strengths)


def test_no_architecture_is_listed_in_two_profiles() -> None:
    claimed = [
        architecture for profile in PROFILES for architecture in profile.matching.architectures
    ]
    assert len(set(claimed)) == len(claimed)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_renamed_file_without_a_template_is_recognized_by_its_architecture(
    architecture: str,
) -> None:
    assert recognized("model.gguf", architecture) == ARCHITECTURES[architecture]


def test_no_name_pattern_is_listed_twice() -> None:
    claimed = [
        name.lower().replace("_", "-") for profile in PROFILES for name in profile.matching.names
    ]
    assert len(set(claimed)) == len(claimed)


def test_a_matching_name_takes_precedence_over_template_and_template_over_architecture() -> None:
    template = TEMPLATES["gemma3"]
    assert recognized("qwen3-8b", "gemma2", template) == "qwen3"
    assert recognized("my-model", "gemma2", template) == "gemma3"
    assert recognized("my-model", "gemma2") == "gemma2"


def test_the_best_match_of_several_names_is_used() -> None:
    evidence = Evidence(("default", "/models/a.gguf", "Qwen3 Coder 30B A3B Instruct"))
    assert recognize(evidence, PROFILES).profile.name == "qwen3-coder"


def test_the_file_name_of_a_path_takes_precedence_over_its_folders() -> None:
    assert recognized("/home/me/deepseek-r1-tests/Qwen3-8B.gguf") == "qwen3"


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (
            Evidence(("unsloth/Qwen3_Coder-30B.gguf",)),
            'name "Qwen3_Coder-30B.gguf" matches "*qwen3-coder*"',
        ),
        (
            Evidence(template=TEMPLATES["gemma3"]),
            'its chat template contains "<start_of_turn>" and "first_user_prefix"',
        ),
        (Evidence(architecture="lfm2"), 'its architecture is "lfm2"'),
        (Evidence(("my-model",)), "no known profile matches; generic profile"),
    ],
)
def test_the_reason_of_a_recognition_says_what_matched(evidence: Evidence, reason: str) -> None:
    assert recognize(evidence, PROFILES).reason == reason


def test_the_alphabetically_first_of_two_equally_good_profiles_is_selected() -> None:
    equal_profiles = [
        Profile(name, name, GENERIC.quirks, Matching(names=("*twin*",))) for name in ("b", "a")
    ]
    assert recognize(Evidence(("twin-1b",)), equal_profiles).profile.name == "a"


@settings(deadline=None)
@given(
    name=st.sampled_from([name for name, _ in TABLE]),
    affixes=st.text(string.ascii_letters + string.digits + "-_.", max_size=8),
    shuffled=st.permutations(PROFILES),
)
def test_recognition_does_not_depend_on_case_or_on_the_order_of_profiles(
    name: str, affixes: str, shuffled: list[Profile]
) -> None:
    evidence = Evidence((name + affixes,))
    recognized = recognize(evidence, PROFILES)
    assert recognize(evidence, shuffled) == recognized
    assert (
        recognize(Evidence(((name + affixes).swapcase(),)), shuffled).profile == recognized.profile
    )


@pytest.mark.parametrize("unit", ["a/", "qwen3", "-", "a"])
def test_the_time_of_recognition_does_not_grow_with_the_length_of_a_name(unit: str) -> None:
    def work(text: str) -> None:
        recognize(Evidence((text,)), PROFILES)

    assert is_bounded(work, lambda size: unit * size, 2_000)


def test_only_the_end_of_a_long_path_is_searched() -> None:
    recognition = recognize(Evidence(("llama-3.1/" + "x/" * 3_000 + "qwen3-8b",)), PROFILES)
    assert recognition.profile.name == "qwen3"
    assert recognize(Evidence(("qwen3-8b/" + "x/" * 3_000,)), PROFILES).profile is GENERIC
