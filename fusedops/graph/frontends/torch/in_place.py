"""Changes in place: where nobody but the changed tensor's own readers sees them, they are read as operators that make a
new one."""

# Operators that may give back their input, or a part of it, though torch's schema does not say so.
_ALIASES = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "type_as", "getitem"}


def is_plain(module, inputs):
    """Whether each change in a graph is seen through the changed tensor alone; `inputs` are the names of the inputs,
    which may be changed."""
    return all(_is_plain(m.graph, inputs) for m in module.modules() if hasattr(m, "graph"))


def _is_plain(graph, inputs):
    place = {n: i for i, n in enumerate(graph.nodes)}
    groups = {}
    for node in graph.nodes:
        source = _aliased(node)
        groups[node] = groups.get(source, [node])
        if groups[node][0] is not node:
            groups[node].append(node)
        if not is_change(node):
            continue
        group, target = groups[node], changed(node)
        others = [n for n in group if changed(n) is not target]
        own = group[0].op == "call_function" or group[0].name in inputs
        if not own or any(place[u] > place[node] for n in others for u in n.users):
            return False
    return True


def is_change(node):
    return node.op == "call_function" and hasattr(node.target, "_schema") and node.target._schema.is_mutable


def changed(node):
    """The node whose value a change in place, or a row of them, gives back; any other node is itself."""
    while is_change(node):
        node = node.args[0]
    return node


def _aliased(node):
    """The node whose memory this one's result may share."""
    name = getattr(getattr(node.target, "_schema", node.target), "name", "") if node.op == "call_function" else ""
    name = str(name).split("::")[-1] or getattr(node.target, "__name__", "")
    schema = getattr(node.target, "_schema", None)
    shared = schema is not None and any(a.alias_info is not None for a in schema.arguments)
    return node.args[0] if (shared or name in _ALIASES) and node.args else None
