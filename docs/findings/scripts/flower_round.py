"""One round of a Flower strategy in memory: what the wrapper releases for given models of clients."""

import logging

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class Nodes:
    def __init__(self, number):
        self.number = number

    def get_node_ids(self):
        return list(range(1, self.number + 1))


def record(arrays):
    return ArrayRecord({f"layer{i}": Array(np.asarray(array)) for i, array in enumerate(arrays)})


def reply(arrays, examples=1, **metrics):
    asked = Message(content=RecordDict(), message_type="train", dst_node_id=1)
    metrics = MetricRecord({"num-examples": examples, **metrics})
    return Message(RecordDict({"arrays": record(arrays), "metrics": metrics}), reply_to=asked)


def released(strategy, before, replies, server_round=1):
    """The model after the round: list of arrays. ``before``: the model that the clients received."""
    list(strategy.configure_train(server_round, record(before), ConfigRecord(), Nodes(len(replies))))
    model, _ = strategy.aggregate_train(server_round, replies)
    return model.to_numpy_ndarrays()


def through(mod, before, after, clip_norm=1.0):
    """What a client sends when its update passes a mod: arrays and the metrics."""
    asked = Message(
        RecordDict({"arrays": record(before), "config": ConfigRecord({"clipping_norm": clip_norm})}),
        message_type="train",
        dst_node_id=1,
    )
    content = RecordDict({"arrays": record(after), "metrics": MetricRecord({"num-examples": 1})})
    sent = mod(asked, None, lambda message, context: Message(content, reply_to=message))
    return sent.content["arrays"].to_numpy_ndarrays(), sent.content["metrics"]
