"""A module of one's own, as tests write it beside a description: what is right in it, and what is not."""

MINE = '''
from dataclasses import dataclass

import torch
from torch import nn

import {neighbour}
from rookery import Algorithm, FedAvg, Minimization
from rookery.data import Shuffled
from rookery.objectives.declare import objective
from rookery.problems import Bilevel


@dataclass(frozen=True)
class Halved(FedAvg):
    """FedAvg with a part of the step."""

    part: float = 0.5

    def round(self, fed, s):
        new = super().round(fed, s)
        return new._replace(x=s.x + self.part * (new.x - s.x))


class Bare(Algorithm):
    pass


def smooth(losses, power: float = 1.0, offset=0.0, **options) -> Minimization:
    """Mean of ℓ^power."""
    return Minimization(lambda x, b: (losses(x, b) ** power).mean() + offset, **options)


def strange(model, thing: object):
    return None


def nothing(model):
    return 3


class Net(nn.Module):
    def __init__(self, inputs: int, classes: int, width: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, classes))

    def forward(self, inputs):
        return self.layers(inputs)


def wrong_net(shape, classes):
    return nn.Linear(3, classes)


def narrow_net(inputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 1))


def dropping_net(inputs, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 8), nn.Dropout(0.5), nn.Linear(8, classes))


def bare(losses):
    return Minimization(lambda x, b: losses(x, b).mean())


@dataclass(frozen=True)
class Unread(FedAvg):
    part: "Nonsense" = 0.5


def broken_net(inputs):
    raise ZeroDivisionError("no net today")


def top2(outputs, labels):
    return (outputs.topk(2, 1).indices == labels[:, None]).any(1).float().mean()


top2.larger_is_better = True


def columns(outputs, fields):
    return len(fields)


def undecided(outputs, labels):
    return float("nan")


def texts(outputs, labels):
    return "much"


def accuracy(outputs, labels):
    return 1.0


def fails(outputs, labels):
    return {neighbour}.fail()


@dataclass(frozen=True)
class Twice(Shuffled):
    times: int = 1


SHUFFLED = Shuffled()
'''
