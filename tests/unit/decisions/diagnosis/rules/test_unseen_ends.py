"""Ends of many programs: lost numbers, the program's own exceptions, ends without a cause, and killed processes."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass as F


def logs(text: str) -> list[str]:
    """The logs of one text, parted by `====`."""
    return text.rstrip("\n").split("\n====\n")


def told(text: str) -> F:
    """The class of one log."""
    return diagnose(evidence_of([("train.log", text.split("\n"))])).fault_class


NUMERIC = """\
02:29:53: train iter: 0 loss_net: 0.9443 loss_scale: 32768.0000 norm: 21.8862 seconds: 445.463
02:31:56: train iter: 100 loss_net: nan loss_scale: 785.4200 norm: nan seconds: 122.871
02:33:59: train iter: 200 loss_net: nan loss_scale: 1.0000 norm: nan seconds: 123.053
====
333 154 Loss=nan Time=0.040
333 155 Loss=nan Time=0.041
333 156 Loss=nan Time=0.043
====
D_loss: nan, D_loss_grad_norm: nan, D_lr: 0.001882
D_reg: 0.002352, D_reg_grad_norm: 0.001569, G_loss: nan
G_loss_grad_norm: nan, G_lr: 0.0016, G_reg: nan
====
[OVERFLOW!] Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1
[OVERFLOW!] Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1
[OVERFLOW!] Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1
[OVERFLOW!] Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1
[OVERFLOW!] Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1
====
[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1
[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1
[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 1, reducing to 1
====
Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1.52587890625e-05
Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 7.62939453125e-06
Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 0.0
====
Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 0.0
ZeroDivisionError: float division by zero
====
step 100: train loss nan, val loss nan
step 200: train loss nan, val loss nan
====
Epoch 3/10
 100/1000 [==>...........] - ETA: 10:00 - loss: nan - accuracy: 0.001
Epoch 4/10
 100/1000 [==>...........] - ETA: 10:00 - loss: nan - accuracy: 0.001
====
Batch 100: Invalid loss, terminating training
====
I0101 solver.cpp:237] Iteration 100, loss = nan
I0101 solver.cpp:237] Iteration 200, loss = nan
====
tensorflow.python.framework.errors_impl.InvalidArgumentError: LossTensor is inf or nan. : Tensor had NaN values
====
InvalidArgumentError: Nan in summary histogram for: ModelVars/conv/weights
====
tf.debugging.check_numerics: !!! Detected Infinity or NaN in output 0 of eagerly-executing op "Log"
====
Traceback (most recent call last):
  File "train.py", line 30, in step
    raise ValueError('NaN loss at step 1200')
ValueError: NaN loss at step 1200
====
Traceback (most recent call last):
  File "train.py", line 30, in step
    assert not torch.isnan(loss).any()
AssertionError
====
Traceback (most recent call last):
  File "train.py", line 30, in step
    assert torch.isfinite(loss), loss
AssertionError: tensor(nan, device='cuda:0', grad_fn=<NllLossBackward0>)
====
Traceback (most recent call last):
  File "train.py", line 30, in step
    sys.exit()
RuntimeError: Loss is infinite or NaN!
====
Loss is nan, stopping training
{'loss': nan}
====
ERROR: loss became NaN at iteration 2210, exiting
====
WARNING nan or inf in gradients for 50 consecutive steps, aborting run
====
[PSNR] nan
epoch 1: train_loss=nan psnr=nan
epoch 2: train_loss=nan psnr=nan
epoch 3: train_loss=nan psnr=nan
====
completed step: 410, seconds: 1.1, TFLOP/s/device: 100, loss: nan
completed step: 411, seconds: 1.1, TFLOP/s/device: 100, loss: nan
"""
OWN = """\
Traceback (most recent call last):
  File "/home/u/proj/train.py", line 120, in <module>
    main()
  File "/home/u/proj/train.py", line 90, in main
    raise MyTrainerError('bad phase')
proj.errors.MyTrainerError: bad phase
====
Traceback (most recent call last):
  File "train.py", line 9, in f
    x = batch['labels']
KeyError: 'labels'
====
Traceback (most recent call last):
  File "train.py", line 9, in f
AssertionError
root_cause: ChildFailedError:
train.py FAILED
====
Traceback (most recent call last):
  File "/x/model.py", line 9, in forward
    x = self.proj(x)
  File "/opt/torch/nn/modules/module.py", line 1511, in _wrapped_call_impl
RuntimeError: shape '[4, 128, 12, 64]' is invalid for input of size 12345
====
thread 'main' panicked at src/train.rs:10:5:
index out of bounds: the len is 3 but the index is 3
====
terminate called after throwing an instance of 'std::out_of_range'
  what():  vector::_M_range_check: __n (which is 8) >= this->size() (which is 8)
Aborted (core dumped)
====
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    trainer.fit(model)
  File "model.py", line 88, in training_step
    loss = loss.itm()
AttributeError: 'Tensor' object has no attribute 'itm'
====
  File "train.py", line 7
    def f(x)
            ^
SyntaxError: expected ':'
====
  File "train.py", line 7
    x = 1
IndentationError: unexpected indent
====
Traceback (most recent call last):
  File "train.py", line 9, in f
StopIteration
====
Traceback (most recent call last):
  File "train.py", line 9, in f
Exception: unexpected shape of mask
====
jax.errors.TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].
====
TypeError: forward() got an unexpected keyword argument 'attention_mask'
====
RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.
"""
DATA = """\
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
  File "datasets/json.py"
====
Traceback (most recent call last):
  File "/x/dataset.py", line 9, in __getitem__
    img = Image.open(p)
PIL.UnidentifiedImageError: cannot identify image file '/d/1.jpg'
====
Traceback (most recent call last):
  File "/x/dataset.py", line 9, in __getitem__
OSError: image file is truncated (12 bytes not processed)
====
datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset
====
tensorflow.python.framework.errors_impl.DataLossError: corrupted record at 1234
====
zlib.error: Error -3 while decompressing data: invalid code lengths set
  File "webdataset/tariterators.py"
====
tarfile.ReadError: unexpected end of data
====
UnicodeDecodeError: 'utf-8' codec can't decode byte 0x89 in position 0: invalid start byte
====
ValueError: num_samples should be a positive integer value, but got num_samples=0
"""
UNTOLD = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============
train.py FAILED
------------
Root Cause (first observed failure):
[0]:
  time      : 2024-01-01_10:00:00
  host      : n1
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 123)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
====
srun: error: n1: task 3: Exited with exit code 1
srun: Terminating StepId=1.0
slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2024-01-01T10:00:00 ***
srun: error: n2: task 8: Terminated
====
[launch.py:316:sigkill_handler] Killing subprocess 100
[launch.py:322:sigkill_handler] ['python', 'train.py'] exits with return code = 1
====
WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 2 closing signal SIGTERM
ERROR failed (exitcode: -15) local_rank: 1 (pid: 2) of binary: python
====
subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' returned non-zero exit status 1.
====
mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 15 (Terminated).
====
ProcessExitedException: process 0 terminated with exit code 1
====
container exited with code 143
====
Job failed with exit code 1
====
[launch.py:322] exits with return code = -15
====
step 1 loss 2
step 2 loss 1.9
Terminated
====
--------------------------------------------------------------------------
Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted.
"""
KILLED = """\
Signal 9 (SIGKILL) received by PID 1234
====
train.sh: line 3: 1234 Killed                  python train.py
====
[launch.py:322:sigkill_handler] ['python', 'train.py'] exits with return code = -9
====
ERROR failed (exitcode: -11) local_rank: 2 (pid: 1234) of binary: /usr/bin/python
 traceback : Signal 11 (SIGSEGV) received by PID 1234
====
Segmentation fault (core dumped)
====
srun: error: n1: task 3: Killed
====
container exited with code 137
====
mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).
"""
CONFIG = """\
train.py: error: unrecognized arguments: --lrr 1e-4
====
usage: train.py [-h]
train.py: error: the following arguments are required: --data
====
ModuleNotFoundError: No module named 'flash_attn'
====
AssertionError: num_attention_heads (12) must be divisible by tensor_model_parallel_size (8)
====
ValueError: The number of attention heads 12 is not divisible by tp 8
====
KeyError: 'MASTER_ADDR'
====
hydra.errors.ConfigCompositionException: Could not override 'trainer.gpus'.
====
omegaconf.errors.ConfigAttributeError: Key 'lrr' is not in struct
====
OSError: You are trying to access a gated repo.
====
FileNotFoundError: [Errno 2] No such file or directory: 'configs/train.yaml'
====
bash: torchrun: command not found
====
python: can't open file '/work/trian.py': [Errno 2] No such file or directory
"""
CASES = [
    *((F.NUMERIC, text) for text in logs(NUMERIC)),
    *((F.USER_CODE, text) for text in logs(OWN)),
    *((F.DATA, text) for text in logs(DATA)),
    *((F.UNKNOWN, text) for text in logs(UNTOLD)),
    *((F.PROCESS_KILLED, text) for text in logs(KILLED)),
    *((F.CONFIG, text) for text in logs(CONFIG)),
]


@pytest.mark.parametrize(("wanted", "text"), CASES)
def test_the_end_of_a_program_is_told_from_its_words(wanted: F, text: str) -> None:
    assert told(text) is wanted
