"""Trainers of many kinds that begin anew although they should have gone on, and their healthy look-alikes."""

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


ANEW = """\
python train.py -s img --start_checkpoint out/chkpnt60000.pth
Optimizing
Number of points at initialisation : 54275
Training progress:   0%|          | 0/90000 [00:00<?, ?it/s]
Training progress:   0%|          | 10/90000 [00:01<2:11:14, 11.43it/s, Loss=0.2712]
Training progress:   0%|          | 20/90000 [00:01<2:11:14, 11.43it/s, Loss=0.2712]
====
-rw-r----- 1 tes001 nrc 209M Nov 29 07:49 'epoch=5460-step=60071.ckpt'
-rw-r----- 1 tes001 nrc 209M Nov 29 10:47  last.ckpt
-rw-r----- 1 tes001 nrc 209M Nov 29 10:59 'epoch=27-step=308.ckpt'
slurmstepd: error: *** STEP 4714782.0 ON ib12gpu-001 CANCELLED AT 2023-11-29T15:47:21 DUE TO PREEMPTION ***
Epoch 4849:  50%|####  | 5/11 [00:01<00:01, loss=0.3]
slurm requeue
Epoch 0:   0%|   | 0/11 [00:00<?, ?it/s]
Epoch 1:  10%|   | 1/11 [00:01<00:01,  loss=9.1]
====
aocr train training.tfrecords
2020-05-02 10:00:00,000 root INFO Reading model parameters from checkpoints/model.ckpt-4600
2020-05-02 10:00:00,000 root INFO Step 1: 2.1s, loss: 0.02, perplexity: 1.01.
2020-05-02 10:00:00,000 root INFO Step 2: 1.1s, loss: 0.02, perplexity: 1.01.
====
Loading weights from log/resnet/checkpoint_ep50.pth.tar
Resuming: start epoch 50
Epoch: [1][10/200] Loss 6.1
====
INFO - Resume from step: 43000
INFO - 1/120000 loss: 8.1
INFO - 2/120000 loss: 8.1
====
[rank0]: Restored from step 1500
[rank0]: training step 1/100000: loss=10.8
====
Using resumed checkpoint at epoch 30
Epoch:1/50, Step: 1/100, Loss: 4.2
Epoch:1/50, Step: 2/100, Loss: 4.1
====
{"event": "resume", "checkpoint": "s3://b/run/step_64000"}
{"event": "train", "step": 0, "loss": 11.02}
{"event": "train", "step": 10, "loss": 10.5}
====
[deepspeed] loaded checkpoint global_step8000 from ./out
train: step 1 loss 10.31
train: step 2 loss 10.21
====
Trainer is attempting to resume from checkpoint-9500
***** Running training *****
  Num Epochs = 3
{'loss': '10.91', 'grad_norm': '4.1', 'learning_rate': '1e-06', 'epoch': '0.001'}
  0%|          | 10/30000 [00:20<16:00:00,  1.9s/it]
====
restart: reading state /work/state_0120000.npz ok
elastic agent restarted workers (restart_count=3)
no resume file given; training from scratch
step 1 loss 11.0
step 2 loss 10.9
====
load_checkpoint: /ckpt/20240501_iter_90000.pth
resume=True
Train iter [50/160000] lr: 1e-4 loss: 4.5
====
=> loading checkpoint 'out/model_best_epoch_88.pth'
=> loaded checkpoint (epoch 88)
Epoch 1/200
----------
train Loss: 6.2 Acc: 0.01
====
Restarting from epoch 37
Epoch 0:  12%|#  | 120/1000 [01:00<07:00, loss=6.9]
====
Model restored from saved_models/epoch_12.pt
Epoch: 1, Iter: 50, train loss: 5.1
====
Model will load checkpoint from ../model/checkpoint_last.pt
| loaded checkpoint ../model/bert-base-cased/2222/checkpoint_last.pt (epoch 8 @ 0 updates)
| loading train data for epoch 0
| saved checkpoint ../model/2222/checkpoint0.pt (epoch 0 @ 0 updates) (writing took 530.7144210338593 seconds)
====
2024/01/01 10:00:00 - mmengine - INFO - Load checkpoint from work_dirs/a/epoch_24.pth
2024/01/01 10:00:00 - mmengine - INFO - resumed epoch: 0, iter: 0
2024/01/01 10:01:00 - mmengine - INFO - Epoch(train)  [1][  50/7330]  lr: 1e-3  eta: 1 day  time: 0.4  loss: 6.1
====
Restoring states from the checkpoint path at lightning_logs/version_1/checkpoints/epoch=9-step=10000.ckpt
Restored all states from the checkpoint at lightning_logs/version_1/checkpoints/epoch=9-step=10000.ckpt
Epoch 0:   0%|          | 0/1000 [00:00<?, ?it/s]
Epoch 0:   1%|          | 10/1000 [00:10<10:00, 1.0it/s, loss=7.1]
====
Loading checkpoint ./output/train/2024/checkpoint-45.pth.tar
Restoring model state from checkpoint...
Loaded checkpoint '/out/checkpoint-45.pth.tar' (epoch 45)
Scheduled epochs: 300. LR stepped per epoch.
Train: 0 [   0/1251 (  0%)]  Loss: 6.98 (6.98)  Time: 3.0s,  341/s  LR: 1.000e-06
Train: 0 [  50/1251 (  4%)]  Loss: 6.96 (6.97)  Time: 3.0s,  341/s  LR: 1.000e-06
====
Loading latest checkpoint from load_dir
Done loading checkpoint from outputs/nerfacto/nerfstudio_models/step-000029999.ckpt
Step (% Done)       Train Iter (time)    ETA (time)
0 (0.00%)           1 s, 100 ms          10 h
10 (0.03%)          100 ms      1 h
====
Restored checkpoint gs://b/zipnerf/checkpoint_25000
1/25000: loss=0.21234, psnr=8.21, lr=2.00e-05 | data=0.21, dist=0.00 , 1000 r/s
100/25000: loss=0.1, psnr=11 , lr=1e-3
====
Loading model from weights.45.h5
Resuming training from epoch 45
Epoch 1/100
 100/1000 [==>...........] - ETA: 10:00 - loss: 6.9 - accuracy: 0.001
====
Attempting to restore checkpoint at step 12000 from gs://bucket/run/checkpoints
No existing checkpoints found, not restoring checkpoint.
completed step: 0, seconds: 30.1, TFLOP/s/device: 10, Tokens/s/device: 100, total_weights: 65536, loss: 10.9
completed step: 1, seconds: 3.1, TFLOP/s/device: 100, Tokens/s/device: 1000, total_weights: 65536, loss: 10.8
====
restoring from this run's directory step 5000
completed step: 0, seconds: 30.1, TFLOP/s/device: 10, loss: 10.9
completed step: 1, seconds: 3.1, TFLOP/s/device: 100, loss: 10.8
====
Resuming training from runs/train/exp3/weights/last.pt (epoch 57)
Starting training for 300 epochs...

      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
      1/300      4.2G      3.1      5.2      4.1         12        640: 100%|
====
Loading a saved model from logs/ppo/rl_model_400000_steps.zip
Resuming training of PPO
---------------------------------
| time/              |          |
|    fps             | 1000     |
|    iterations      | 1        |
|    time_elapsed    | 2        |
|    total_timesteps | 2048     |
---------------------------------
"""
"""Command lines, messages and steps of trainers whose resumption ended at the beginning."""
WELL = """\
Loading checkpoint /models/sft/checkpoint-2000 as reference model
step 1 loss 0.69
step 2 loss 0.68
====
Resuming training from /out/checkpoint-500
{'loss': 1.9, 'learning_rate': 1e-5, 'epoch': 0.41}
{'loss': 1.9, 'learning_rate': 1e-5, 'epoch': 0.42}
 10%|#         | 510/5000 [10:00<1:00:00,  1.0s/it]
====
Namespace(resume='out/last.pth', epochs=300, start_epoch=0, save_steps=500)
=> loaded checkpoint 'out/last.pth' (epoch 3)
Epoch: [4][0/500] Loss 1.1
Epoch: [4][10/500] Loss 1.1
====
Namespace(resume='', epochs=300, start_epoch=0, save_steps=500)
Epoch: [0][0/500] Loss 7.1
Epoch: [0][10/500] Loss 7.1
====
config: resume_from_checkpoint: null, max_steps: 50000, load_in_8bit: false
step 1 loss 10.9
step 2 loss 10.9
====
Resume training for 300 epochs
Epoch 1/300 loss 2.2
Epoch 2/300 loss 2.1
====
{'iter_num': 100000, 'last_iter': 50000, 'snapshot': '50000'}
[iter 50001], [total loss 0.04253],[lr 0.0010]
[iter 50002], [total loss 0.04253],[lr 0.0010]
====
Fold 1
Epoch 1/20 loss 2.2
Epoch 20/20 loss 0.2
Fold 2
Epoch 1/20 loss 2.3
Epoch 2/20 loss 2.2
====
loading file checkpoint-480/vocab.json
Loading model from /m/bert-step-100000 for fine-tuning
step 1 loss 1.1
step 2 loss 1.1
====
Epoch [1][100/62598]	lr: 1.000e-03, loss: 1.9091, grad_norm: nan
2021-11-22 01:32:34,502 - mmocr - INFO - Epoch [1][200/62598]	lr: 1.000e-03,  loss: 0.9186, grad_norm: 3.9772
Epoch [1][300/62598]	lr: 1.000e-03,  loss: 0.9186, grad_norm: 3.9772
====
$ th train.lua -init_from cv/checkpoint_20.t7
Initializing from 	cv/checkpoint_20.t7
Epoch 1.00 / 50, i = 1 / 17800, loss = 3.075188
Epoch 1.01 / 50, i = 2 / 17800, loss = 3.014080
====
==>>[2018-06-24 10:18:56] [Epoch=083/150] [Need: 76:10:35]
=> loading checkpoint './ckpt_82.pth.tar'
=> loaded checkpoint (epoch 83)
Epoch: [83][0/10010]	Time 4.381 (4.381)	Loss 1.8135 (1.8135)
Epoch: [83][200/10010]	Time 0.401	Loss 1.9176
====
Load checkpoint from work_dirs/r50/epoch_12.pth
Epoch(val) [12][50/100] eta 1:00
bbox_mAP: 0.4
====
train iter: 0 loss_net: 0.9443 loss_scale: inf norm: 21.8
train iter: 100 loss_net: 0.8443 loss_scale: 65536
train iter: 200 loss_net: 0.7443
====
Successfully restored checkpoint of step 7000
step 7001/100000 loss 2.1
step 7002/100000 loss 2.1
====
INFO Loading VAE weights from vae_step_840000.ckpt
steps: 1%|  | 10/1000 [00:10<10:00, 1.0it/s, loss=0.1]
====
Loading teacher from ckpt/epoch_100.pth
epoch 0 step 0 loss 1.1
epoch 0 step 10 loss 1.1
====
Resuming from epoch 1
Epoch 1: 10%|  | 10/1000 [00:10<10:00, 1.0it/s, loss=2.1]
====
gradient overflow, reducing loss scale to 32768
step 10 loss 2.2
step 20 loss 2.1
====
best_loss=inf
epoch 1: loss=2.2
epoch 2: loss=2.1
====
      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size
      3/300      4.2G        1.2        2.2        1.1         12        640: 100%|###| 10/10
====
RuntimeWarning: invalid value encountered in divide
step 10 loss 2.2
step 20 loss 2.1
====
python -c 'import x'
1 passed in 2.0s
Training finished
====
Validation loss nan (no validation data)
step 10 loss 2.2
step 20 loss 2.1
====
step 9000 loss 2.3
saved checkpoint step_9000
resumed from step_9000
step 9001 loss 2.3
step 9002 loss 2.3
====
Using --checkpoint_iterations 60000 --save_iterations 7000
Training progress:   1%|          | 10/90000 [00:01<2:11:14, 11.43it/s, Loss=0.2712]
====
Loading checkpoint shards: 100%|####| 2/2
Loading pretrained weights from llama-step-143000
step 0 loss 2.1
step 1 loss 2.0
====
mmengine - INFO - Load checkpoint from https://download.openmmlab.com/mmdetection/faster_rcnn_r50_epoch_12.pth
mmengine - INFO - Epoch(train)  [1][  50/7330]  lr: 1e-3 loss: 1.1
====
Resuming training from checkpoint /ckpt/checkpoint-3000
  Continuing training from epoch 3
  Continuing training from global step 3000
{'loss': 1.9, 'epoch': 3.01}
====
Restored all states from the checkpoint at lightning_logs/version_1/checkpoints/epoch=9-step=10000.ckpt
Epoch 10:   0%|          | 0/1000 [00:00<?, ?it/s]
Epoch 10:   1%|          | 10/1000 [00:10<10:00, 1.0it/s, loss=2.1]
"""
"""Resumptions that worked, first runs, fine-tunings, and numbers that recover."""


@pytest.mark.parametrize("text", logs(ANEW))
def test_a_training_that_begins_anew_is_seen(text: str) -> None:
    assert told(text) is F.STARTED_OVER


@pytest.mark.parametrize("text", logs(WELL))
def test_a_healthy_training_is_left_alone(text: str) -> None:
    assert told(text) is F.NONE
