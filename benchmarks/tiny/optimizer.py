"""Muon for the matrices inside, Adam for embeddings and norms; matrices of a shape go together.

Muon: K. Jordan, github.com/KellerJordan/Muon; the coefficients of its iteration are from there.
"""

from collections import defaultdict

import torch

from benchmarks.tiny.model import Weights

_MUON_RATE, _ADAM_RATE = 0.02, 4e-3
_MOMENTUM, _ITERATIONS = 0.95, 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)


class Optimizer:
    """Takes steps; its state can be saved and put back."""

    def __init__(self, weights: Weights) -> None:
        inside = {name: one for name, one in weights.items() if _is_inside(name, one)}
        self._groups: dict[tuple[int, ...], list[torch.Tensor]] = defaultdict(list)
        for one in inside.values():
            self._groups[tuple(one.shape)].append(one)
        self._moments = {
            shape: torch.zeros_like(torch.stack(group)) for shape, group in self._groups.items()
        }
        others = [one for name, one in weights.items() if name not in inside]
        self._adam = torch.optim.Adam(others, lr=_ADAM_RATE, betas=(0.9, 0.98))

    def state(self) -> dict[str, object]:
        """Return what has to be saved."""
        return {"moments": self._moments, "adam": self._adam.state_dict()}

    def restore(self, state: dict[str, object]) -> None:
        """Put a saved state back."""
        moments, adam = state["moments"], state["adam"]
        assert isinstance(moments, dict)  # noqa: S101 - `state` wrote it
        assert isinstance(adam, dict)  # noqa: S101 - the same
        self._moments = moments
        self._adam.load_state_dict(adam)

    def step(self, share: float) -> None:
        """Take a step at a share of the full rates; gradients are gone afterwards."""
        for group in self._adam.param_groups:
            group["lr"] = _ADAM_RATE * share
        self._adam.step()
        with torch.no_grad():
            for shape, matrices in self._groups.items():
                self._turn(shape, matrices, _MUON_RATE * share)
        self._adam.zero_grad(set_to_none=True)

    def _turn(self, shape: tuple[int, ...], matrices: list[torch.Tensor], rate: float) -> None:
        """Change all matrices of a shape."""
        gradient = torch.stack([one.grad for one in matrices])
        moment = self._moments[shape].mul_(_MOMENTUM).add_(gradient)
        update = _orthogonal(gradient.add(moment, alpha=_MOMENTUM))
        scale = max(1.0, shape[0] / shape[1]) ** 0.5
        for matrix, change in zip(matrices, update, strict=True):
            matrix.add_(change, alpha=-rate * scale)
            matrix.grad = None


def _is_inside(name: str, weight: torch.Tensor) -> bool:
    return name.startswith("blk.") and weight.ndim == 2


def _orthogonal(found: torch.Tensor) -> torch.Tensor:
    """Bring all singular values of each matrix near to 1, by Newton and Schulz."""
    first, second, third = _COEFFICIENTS
    is_tall = found.shape[-2] > found.shape[-1]
    current = found.transpose(-2, -1) if is_tall else found
    current = current.bfloat16() if current.is_cuda else current
    current = current / (current.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        square = current @ current.transpose(-2, -1)
        current = first * current + (second * square + third * square @ square) @ current
    return (current.transpose(-2, -1) if is_tall else current).to(found.dtype)
