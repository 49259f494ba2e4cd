"""Public repositories, each at the commit of the corpus."""

from __future__ import annotations

from tests.street.script import Source

EXAMPLES = Source("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
VISION = Source("pytorch/vision", "acccf86477759b2d3500f1ae1be065f7b1e409ec")
VISION_0_21 = Source("pytorch/vision", "7af698794eded568735f9519593603c1ec889eba")
TIMM = Source("huggingface/pytorch-image-models", "aa4b5850c1543fa488abf260f18390eda46cf85d")
TRANSFORMERS = Source("huggingface/transformers", "cc041637bc2b3639bba0b8f85672c1653cdb6248")
ACCELERATE = Source("huggingface/accelerate", "16cb6eb80dd9aa8b4df1a63ef57863e455d53b83")
DIFFUSERS = Source("huggingface/diffusers", "58eb52c0803ea9af3abec60841c2a093bdf1f951")
LIGHTNING = Source("Lightning-AI/pytorch-lightning", "7f0c3436cd3f6ad3753125672024fc415cbcb414")
NANOGPT = Source("karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291")
MINGPT = Source("karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26")
MAKEMORE = Source("karpathy/makemore", "988aa59e4d8fefa526d06f3b453ad116258398d4")
UNET = Source("milesial/Pytorch-UNet", "21d7850f2af30a9695bbeea75f3136aa538cfc4a")
GAN = Source("eriklindernoren/PyTorch-GAN", "36d3c77e5ff20ebe0aeefd322326a134a279b93e")
DIFFUSION_MNIST = Source("TeaPearce/Conditional_Diffusion_MNIST", "657b49854bbf844caa5580177243ae607c79339f")
YOLOV5 = Source("ultralytics/yolov5", "5081342f04fb287fc2e5f2b5a4e06752b7937b1c")
YOLOX = Source("Megvii-BaseDetection/YOLOX", "6ddff4824372906469a7fae2dc3206c7aa4bbaee")
VOXCELEB = Source("clovaai/voxceleb_trainer", "f51bab870672a9b0b50fa158b4e30f329e7866d7")
GEOMETRIC = Source("pyg-team/pytorch_geometric", "5c6461b2305ad068a6d61165b3c55852a11aaa41")
DLRM = Source("facebookresearch/dlrm", "090956ee2319ddd349a42232958aefccfe3f7b0a")
SERIES = Source("thuml/Time-Series-Library", "4e938a1767106324dd753b2a44832bf870a0252e")
CLEANRL = Source("vwxyzjn/cleanrl", "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb")
DOMAINS = Source("jvanvugt/pytorch-domain-adaptation", "be63aadc18821d6b19c75df51f264ff08370a765")
TUTORIAL = Source("yunjey/pytorch-tutorial", "0500d3df5a2a8080ccfccbc00aca0eacc21818db")
KERAS = Source("keras-team/keras", "2588a15440a10de8d0cc10b50c21ede333a2bd01")
