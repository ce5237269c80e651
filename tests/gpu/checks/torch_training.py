"""Small training runs of the PyTorch script: DDP, FSDP2 and tensor parallel."""
import torch
import torch.distributed as dist

from checks.report import expect
from checks.torch_here import Here

STEPS = 20


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attention = torch.nn.MultiheadAttention(width, 4, batch_first=True)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.first(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


class Transformer(torch.nn.Module):
    def __init__(self, width=64, blocks=2, words=128):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = torch.nn.Linear(width, words)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(wrap):
    """The losses of all steps, averaged over the ranks."""
    torch.manual_seed(7)
    if not Here.gloo:
        torch.use_deterministic_algorithms(Here.exact, warn_only=True)
        torch.backends.cuda.matmul.allow_tf32 = False
    model = wrap(Transformer().to(Here.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(100 + Here.rank)
    losses = []
    for _ in range(STEPS):
        tokens = torch.randint(0, 16, (8, 33), generator=generator).cumsum(1) % 128
        tokens = tokens.to(Here.device)
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / Here.size)
    return losses


CURVES = {}


def learns(name, losses, reference):
    CURVES[name] = losses
    expect(losses[-1] < losses[0] - 0.2, f"the loss went from {losses[0]:.4f} to {losses[-1]:.4f}")
    text = f"loss {losses[0]:.4f} to {losses[-1]:.4f}"
    if name in reference:
        worst = max(abs(a - b) for a, b in zip(losses, reference[name]))
        expect(worst < 2e-3, f"up to {worst:.6f} away from the other library's curve")
        expect(not Here.exact or losses == reference[name], f"not bit by bit the other library's curve: up to {worst:.2e} away")
        text += ", bit by bit the other library's" if losses == reference[name] else f", at most {worst:.2e} from the other library's"
    return text


def ddp(reference):
    from torch.nn.parallel import DistributedDataParallel

    return learns("ddp", train(lambda model: DistributedDataParallel(model, bucket_cap_mb=0.1)), reference)


def fsdp2(reference):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu" if Here.gloo else "cuda", (Here.size,))

    def wrap(model):
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    return learns("fsdp2", train(wrap), reference)


def tensor_parallel(_reference):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(3)
    layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)).to(Here.device)
    torch.manual_seed(4)
    x = torch.randn(16, 64).to(Here.device)
    alone = layers(x)
    alone.square().mean().backward()
    wanted = layers[0].bias.grad.clone()
    layers.zero_grad()
    mesh = init_device_mesh("cpu" if Here.gloo else "cuda", (Here.size,))
    parallel = parallelize_module(layers, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    y = parallel(x)
    y.square().mean().backward()
    expect(torch.allclose(y, alone, atol=1e-5), "another output")
    expect(torch.allclose(parallel[0].bias.grad.full_tensor(), wanted, atol=1e-5), "another gradient")
