"""Message classes as protoc would generate them, from descriptions that tests build."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto


def order_classes() -> dict[str, Any]:
    """The classes of two files: shop/order.proto imports shop/customer.proto. The name of each is its full name."""
    pool = descriptor_pool.DescriptorPool()
    customer = descriptor_pb2.FileDescriptorProto(name="shop/customer.proto", package="shop", syntax="proto3")
    _message(customer, "Customer", [("name", _FIELD.TYPE_STRING, "")])
    order = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto", package="shop", syntax="proto3", dependency=["shop/customer.proto"]
    )
    _message(order, "Refund", [("reason", _FIELD.TYPE_STRING, "")])
    outer = _message(order, "Order", [("id", _FIELD.TYPE_INT64, ""), ("by", _FIELD.TYPE_MESSAGE, ".shop.Customer")])
    for name in ("Line", "Address"):
        inner = outer.nested_type.add(name=name)
        inner.field.add(name="text", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    pool.Add(customer)
    pool.Add(order)
    files = [pool.FindFileByName(each) for each in ("shop/customer.proto", "shop/order.proto")]
    found: dict[str, Any] = {}
    for file in files:
        for each in file.message_types_by_name.values():
            for descriptor in (each, *each.nested_types):
                found[descriptor.full_name] = message_factory.GetMessageClass(descriptor)
    return found


def _message(file: Any, name: str, fields: list[tuple[str, int, str]]) -> Any:
    made = file.message_type.add(name=name)
    for number, (field, kind, of) in enumerate(fields, 1):
        made.field.add(name=field, number=number, type=kind, type_name=of or None, label=_FIELD.LABEL_OPTIONAL)
    return made


def add_fields(message: Any, *fields: str) -> None:
    """Add fields as a .proto file writes them: `optional int64 n`, `repeated .shop.Line lines`, `oneof:one string s`.

    Those of a oneof come first.
    """
    for text in fields:
        *words, kind, name = text.split()
        word = words[0] if words else ""
        made = message.field.add(name=name, number=len(message.field) + 1, label=_FIELD.LABEL_OPTIONAL)
        if word == "repeated":
            made.label = _FIELD.LABEL_REPEATED
        if word == "optional":
            made.proto3_optional = True
            made.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        if word.startswith("oneof:"):
            known = [each.name for each in message.oneof_decl]
            if word[6:] not in known:
                message.oneof_decl.add(name=word[6:])
            made.oneof_index = [each.name for each in message.oneof_decl].index(word[6:])
        if not kind.startswith("."):
            made.type = getattr(_FIELD, f"TYPE_{kind.upper()}")
        else:
            made.type_name = kind
