"""The second tier: exceptions that no rule names, by type, words and frames."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.exception_table import FRAMES, MESSAGES, TYPES
from flows.decisions.diagnosis.exceptions import MOST, Raised, judge, second_tier
from flows.decisions.diagnosis.matching import match_line, rule_by_name
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

F = FaultClass
MODEL = ("train.py:main", "torch/nn/modules/module.py:_call_impl", "model.py:forward")
WORKER = (
    "torch/utils/data/_utils/worker.py:_worker_loop",
    "torch/utils/data/_utils/fetch.py:fetch",
    "ds.py:__getitem__",
)
LOAD = ("train.py:main", "utils/ckpt.py:load_checkpoint", "torch/serialization.py:load", "torch/serialization.py:_load")
STATE = ("trainer.py:load_checkpoint", "torch/nn/modules/module.py:load_state_dict")
SAVE = ("trainer.py:save_checkpoint", "torch/serialization.py:save", "torch/serialization.py:_save")
MAIN = ("train.py:<module>", "train.py:main")
S3 = ("boto3/s3/transfer.py:upload_file", "botocore/client.py:_make_api_call")
TABLES = ("datasets/builder.py:_prepare_split", "datasets/packaged_modules/json/json.py:_generate_tables")

SEEN: dict[FaultClass, tuple[tuple[str, tuple[str, ...]], ...]] = {
    F.USER_CODE: (
        ("TypeError: forward() got an unexpected keyword argument 'foo'", MODEL),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", MAIN),
        ("IndexError: list index out of range", WORKER),
        ("KeyError: 'labels'", MAIN),
        ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 1024x10)", MODEL),
        (
            "RuntimeError: shape mismatch: value tensor of shape [3] cannot be broadcast to shape [4]",
            MODEL,
        ),
        ("RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.", MODEL),
        (
            "RuntimeError: a variable needed for gradient computation has been modified by an inplace operation",
            (),
        ),
        ("ValueError: Expected input batch_size (32) to match target batch_size (64).", MODEL),
        ("RuntimeError: Found dtype Half but expected Float", ("torch/autograd/graph.py:_engine_run_backward",)),
        (
            "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: Recomputed values have different metadata",
            ("torch/utils/checkpoint.py:check_recomputed_tensors_match",),
        ),
        (
            "AttributeError: Can't pickle local object 'main.<locals>.collate'",
            ("multiprocessing/spawn.py:_main", "multiprocessing/reduction.py:dump"),
        ),
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess.",
            (*WORKER, "torch/cuda/__init__.py:_lazy_init"),
        ),
        ("RuntimeError: DDP expects same model across all ranks, but Rank 0 has 64 params, while rank 1 has 0", MAIN),
        ("ValueError: Attention mask should be of size (1, 1, 10, 20), but is torch.Size([1, 1, 10, 10])", MODEL),
        ("RuntimeError: Tensors must be CUDA and dense", ("torch/distributed/distributed_c10d.py:all_reduce",)),
        ("jax.errors.TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].", MAIN),
        ("acme.train.Surprise: step 7", ()),
        ("AssertionError", MODEL),
    ),
    F.CONFIG: (
        ("ModuleNotFoundError: No module named 'apex'", MAIN),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'configs/train.yaml'", MAIN),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.jsonl'", MAIN),
        ("PermissionError: [Errno 13] Permission denied: '/checkpoints'", MAIN),
        (
            "ValueError: File data/mllm_dome.json not found.",
            ("factory/train/sft/workflow.py:run", "factory/data/loader.py:load"),
        ),
        (
            "AssertionError: number of layers (30) must be divisible by pipeline_model_parallel_size (4)",
            ("megatron/training/arguments.py:validate_args",),
        ),
        (
            "RuntimeError: The detected CUDA version (12.1) mismatches the version that was used to compile it (11.8).",
            ("torch/utils/cpp_extension.py:_check_cuda_version",),
        ),
        (
            "ValueError: --load_best_model_at_end requires the save and eval strategy to match",
            ("transformers/training_args.py:__post_init__",),
        ),
        ("KeyError: 'LOCAL_RANK'", MAIN),
        ("KeyError: 'HF_HOME'", ("train.py:main", "os.py:__getitem__")),
        (
            "KeyError: 'CocoDataset2 is not in the mmdet::dataset registry.'",
            ("mmengine/registry/build_functions.py:build",),
        ),
        ("AttributeError: module 'numpy' has no attribute 'bool'.", ("utils.py:<module>",)),
        ("ValueError: Unknown optimizer: adamww", MAIN),
        (
            "ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:",
            MAIN,
        ),
        ("RuntimeError: Permission denied", ("torch/distributed/distributed_c10d.py:init_process_group",)),
        (
            "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
            ("deepspeed/runtime/config.py:__init__", "json/decoder.py:raw_decode"),
        ),
        ("botocore.exceptions.NoCredentialsError: Unable to locate credentials", S3),
        (
            "botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation: Forbidden",
            S3,
        ),
        ("RuntimeError: Attempting to deserialize object on CUDA device 7 but torch.cuda.device_count() is 4.", LOAD),
    ),
    F.DATA: (
        ("PIL.UnidentifiedImageError: cannot identify image file '/data/n01.jpg'", (*WORKER, "PIL/Image.py:open")),
        ("OSError: image file is truncated (12 bytes not processed)", (*WORKER, "PIL/ImageFile.py:load")),
        (
            "soundfile.LibsndfileError: <exception str() failed>",
            ("torch/utils/data/dataloader.py:_process_data", "torch/_utils.py:reraise"),
        ),
        (
            "json.decoder.JSONDecodeError: Extra data: line 2 column 1 (char 120)",
            ("data/ds.py:__init__", "json/decoder.py:decode"),
        ),
        ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0x8b in position 1: invalid start byte", ()),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/imgs/000123.jpg'", WORKER),
        ("_pickle.UnpicklingError: pickle data was truncated", WORKER),
        ("ValueError: Not able to read records in the JSON file at /data/train.json.", TABLES),
        ("ValueError: cannot reshape array of size 100 into shape (3,224,224)", (*WORKER, "numpy/lib/npyio.py:load")),
        ("ValueError: mmap length is greater than file size", ("megatron/core/datasets/indexed_dataset.py:__init__",)),
        (
            "OSError: Unable to open file (truncated file: eof = 96, sblock->base_addr = 0)",
            (*WORKER, "h5py/_hl/files.py:open"),
        ),
        ("zlib.error: Error -3 while decompressing data: invalid block type", WORKER),
    ),
    F.CHECKPOINT_CORRUPT: (
        ("EOFError: Ran out of input", ()),
        ("RuntimeError: storage has wrong size: expected 0 got 512", LOAD),
        ("_pickle.UnpicklingError: invalid load key, 'v'.", LOAD),
        ("zipfile.BadZipFile: File is not a zip file", ("flax_train.py:restore_checkpoint", "numpy/lib/npyio.py:load")),
        (
            "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
            ("transformers/trainer_callback.py:load_from_json", "json/decoder.py:raw_decode"),
        ),
        (
            "OSError: Unable to open file (file signature not found)",
            ("keras/saving/save.py:load_model", "h5py/_hl/files.py:open"),
        ),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/step100/mp_rank_00_optim_states.pt'", LOAD),
    ),
    F.CHECKPOINT_MISMATCH: (
        (
            "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint used a DP world size of 8 but the "
            "current world size is 16.",
            (),
        ),
        (
            "KeyError: 'nd_reformulated_orig_global_shape'",
            ("megatron/core/dist_checkpointing/strategies/torch.py:get_reformulation_metadata",),
        ),
        (
            "IndexError: tuple index out of range",
            ("torch/cuda/random.py:set_rng_state_all", "torch/cuda/random.py:set_rng_state"),
        ),
        ("AssertionError: Number of ranks in the checkpoint (8) differs from world size (16)", STATE),
        ("AttributeError: Can't get attribute 'Foo' on <module '__main__' from 'train.py'>", LOAD),
        ("ValueError: loaded state_dict has different number of layers", STATE),
    ),
    F.STORAGE: (
        (
            "RuntimeError: [enforce fail at inline_container.cc:471] . PytorchStreamWriter failed writing file data/3",
            SAVE,
        ),
        ("RuntimeError: [enforce fail at inline_container.cc:337] . unexpected pos 704 vs 598", SAVE),
        (
            "boto3.exceptions.S3UploadFailedError: Failed to upload /tmp/x to b/k: An error occurred (SlowDown)",
            S3,
        ),
        ("urllib.error.HTTPError: HTTP Error 503: Slow Down", ("urllib/request.py:http_error_default",)),
        ("fsspec.exceptions.FSTimeoutError", ("fsspec/asyn.py:sync",)),
        ("google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/x: Backend Error", ()),
        ("sqlite3.OperationalError: database or disk is full", MAIN),
    ),
    F.NUMERIC: (
        (
            "ValueError: The loss returned in `training_step` is nan.",
            ("lightning/pytorch/loops/utilities.py:check_finite_loss",),
        ),
        ("AssertionError: Loss is nan, stopping training", MAIN),
        ("RuntimeError: Detected NaN or Inf in gradients at step 120", MAIN),
        ("ValueError: cannot convert float NaN to integer", MAIN),
    ),
    F.UNKNOWN: (
        ("subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.", ()),
        ("SystemExit: 1", MAIN),
    ),
}
ROWS = [(kind, said, frames) for kind, rows in SEEN.items() for said, frames in rows]


def split(said: str) -> tuple[str, str]:
    name, _, message = said.partition(": ")
    return name, message


@pytest.mark.parametrize(("kind", "said", "frames"), ROWS, ids=[f"{kind}-{said[:50]}" for kind, said, _ in ROWS])
def test_an_exception_is_known_by_type_words_and_frames(kind: FaultClass, said: str, frames: tuple[str, ...]) -> None:
    assert judge(*split(said), frames).fault_class is kind


def test_the_same_words_elsewhere_are_another_fault() -> None:
    broken = ("ValueError", "could not read: file is truncated")
    assert judge(*broken, LOAD).fault_class is F.CHECKPOINT_CORRUPT
    assert judge(*broken, WORKER).fault_class is F.DATA
    missing = ("FileNotFoundError", "[Errno 2] No such file or directory: '/d/x'")
    assert judge(*missing, MAIN).fault_class is F.CONFIG
    assert judge(*missing, WORKER).fault_class is F.DATA


def test_after_steps_were_made_settings_are_less_likely_and_data_is_more() -> None:
    said = ("FileNotFoundError", "[Errno 2] No such file or directory: '/data/shard-3.bin'", MAIN)
    before, after = judge(*said, trained=False), judge(*said, trained=True)
    assert before.fault_class is F.CONFIG
    assert after.weight < before.weight


def test_an_exception_of_which_nothing_is_known_is_the_users_with_the_weight_of_its_rule() -> None:
    rule = rule_by_name("python-exception")
    assert rule is not None
    assert judge("acme.Odd", "").weight == rule.weight
    assert not judge("acme.Odd", "").sure


def told(text: str, raised: Raised | None = None) -> tuple[str, FaultClass, float]:
    found = second_tier(match_line(text), text, raised, trained=False).matches
    assert len(found) == 1
    return found[0].rule.name, found[0].rule.fault_class, found[0].rule.weight


def raised(text: str, *frames: str) -> Raised:
    return Raised(*split(text), frames, LogLine(text, "rank"))


def test_a_rule_that_names_the_line_is_not_overruled() -> None:
    text = "OSError: [Errno 28] No space left on device: '/ckpt'"
    assert told(text, raised(text, *LOAD)) == ("disk-full", F.STORAGE, 0.93)


def test_the_judgement_stands_for_a_rule_of_its_class() -> None:
    text = "KeyError: 'optimizer'"
    assert told(text)[:2] == ("python-exception", F.USER_CODE)
    assert told(text, raised(text, *STATE))[:2] == ("exception-checkpoint-mismatch", F.CHECKPOINT_MISMATCH)


def test_an_exception_without_an_exceptions_name_counts_where_a_traceback_ends_with_it() -> None:
    text = "acme.train.Surprise: step 7"
    assert second_tier(match_line(text), text, None, trained=False).matches == ()
    assert told(text, raised(text))[1] is F.USER_CODE


def test_a_logged_exception_says_less_than_one_that_ended_the_program() -> None:
    logged = "2025-03-01 10:00:00,123 - trainer - ERROR - step 7 failed: KeyError: 'labels'"
    assert told(logged)[2] < told("KeyError: 'labels'")[2]
    retried = "2025-03-01 10:00:00,123 - trainer - ERROR - KeyError: 'labels', retrying"
    assert second_tier(match_line(retried), retried, None, trained=False).matches == ()


def test_a_wrapper_says_less_than_what_it_wraps() -> None:
    wrapped, inner = "TypeError: Caught TypeError in DataLoader worker process 0.", "TypeError: unhashable type: 'list'"
    assert told(wrapped)[2] < told(inner)[2]


def test_an_error_of_a_lost_connection_stays_an_echo_unless_its_frames_name_the_store() -> None:
    text = "ConnectionError: Connection closed"
    assert told(text, raised(text, *MAIN))[0] == "connection-error"
    assert told(text, raised(text, "s3fs/core.py:_call_s3", "s3fs/core.py:_put_file"))[1] is F.STORAGE


def test_hints_compile_and_speak_for_something() -> None:
    for hint in (*TYPES, *MESSAGES, *FRAMES):
        assert hint.regexes
        assert hint.points


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.text(max_size=300), st.lists(st.text(max_size=60), max_size=6), st.booleans())
def test_any_exception_is_judged_with_a_probability(name: str, message: str, frames: list[str], trained: bool) -> None:
    assert 0.0 < judge(name, message, tuple(frames), trained).weight <= MOST
