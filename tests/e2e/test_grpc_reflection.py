"""test_grpc_reflection.py: clients that have nothing but the port: reflection alone gives them every message and call."""
import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2 as pb
from grpc_reflection.v1alpha import reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from cluster import Cluster

SERVICES = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
            "moesaic.v1.Generate"]
KEY = "correct-horse"


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """A cluster that asks for a key."""
    path = tmp_path_factory.mktemp("key") / "key"
    path.write_text(KEY + "\n")
    with Cluster(workers=1, leader_flags=["--api-key-file", path]) as running:
        yield running


def connect(cluster):
    return grpc.insecure_channel(f"127.0.0.1:{cluster.port_of('grpc listening')}",
                                 options=[("grpc.use_local_subchannel_pool", 1)])


@pytest.fixture
def channel(cluster):
    with connect(cluster) as made:
        yield made


def generate_method(channel):
    """Generate and the class of its request for a client that was told no more than the port."""
    database = ProtoReflectionDescriptorDatabase(channel)
    assert "moesaic.v1.Generate" in database.get_services()
    pool = descriptor_pool.DescriptorPool(database)
    method = pool.FindServiceByName("moesaic.v1.Generate").FindMethodByName("Generate")
    ask = message_factory.GetMessageClass(method.input_type)
    answer = message_factory.GetMessageClass(method.output_type)
    assert method.server_streaming and not method.client_streaming
    return channel.unary_stream(f"/{method.containing_service.full_name}/{method.name}",
                                request_serializer=ask.SerializeToString, response_deserializer=answer.FromString), ask


def test_reflection_alone_is_enough_for_a_whole_generation(channel):
    generate, ask = generate_method(channel)
    message = ask(temperature=0)
    message.messages.add(role="user", content="What is the capital of Kenya?")
    parts = list(generate(message, timeout=60))
    assert "".join(p.text for p in parts) == "The capital of Kenya is Nairobi."
    assert parts[-1].finish_reason == "stop" and parts[-1].completion_tokens > 3


def test_the_services_are_those_of_the_port(channel):
    services = ProtoReflectionDescriptorDatabase(channel).get_services()
    assert set(SERVICES) <= set(services)
    assert not [s for s in services if "control" in s or s.startswith("moesaic.descriptor")]


def test_every_service_that_is_listed_can_be_described(channel):
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)
    for name in database.get_services():
        methods = pool.FindServiceByName(name).methods
        assert methods
        for method in methods:
            assert method.input_type.full_name and method.output_type.full_name


def ask(channel, requests, package="grpc.reflection.v1alpha"):
    """Raw questions on one stream, by the name of either version."""
    call = channel.stream_stream(f"/{package}.ServerReflection/ServerReflectionInfo",
                                 request_serializer=pb.ServerReflectionRequest.SerializeToString,
                                 response_deserializer=pb.ServerReflectionResponse.FromString)
    return list(call(iter(requests), timeout=30))


@pytest.mark.parametrize("package", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
def test_one_stream_answers_many_questions_in_order_and_survives_errors(channel, package):
    questions = [pb.ServerReflectionRequest(host="me", list_services="*"),
                 pb.ServerReflectionRequest(file_containing_symbol="moesaic.v1.Nothing"),
                 pb.ServerReflectionRequest(),
                 pb.ServerReflectionRequest(file_containing_symbol="moesaic.v1.Generate.Generate"),
                 pb.ServerReflectionRequest(file_by_filename="health.proto"),
                 pb.ServerReflectionRequest(all_extension_numbers_of_type="moesaic.v1.GenerateRequest"),
                 pb.ServerReflectionRequest(file_containing_extension=pb.ExtensionRequest(
                     containing_type="moesaic.v1.GenerateRequest", extension_number=7))]
    answers = ask(channel, questions, package)
    assert [a.original_request for a in answers] == questions
    assert answers[0].valid_host == "me"
    assert [a.WhichOneof("message_response") for a in answers] == [
        "list_services_response", "error_response", "error_response", "file_descriptor_response",
        "file_descriptor_response", "all_extension_numbers_response", "error_response"]
    codes = [a.error_response.error_code for a in answers if a.HasField("error_response")]
    assert codes == [grpc.StatusCode.NOT_FOUND.value[0], grpc.StatusCode.INVALID_ARGUMENT.value[0],
                     grpc.StatusCode.NOT_FOUND.value[0]]


def test_file_descriptors_are_whole(channel):
    answer = ask(channel, [pb.ServerReflectionRequest(file_containing_symbol="grpc.health.v1.Health")])[0]
    file = descriptor_pb2.FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
    assert (file.package, file.syntax) == ("grpc.health.v1", "proto3")
    entry = {m.name: m for m in file.message_type}["HealthListResponse"].nested_type[0]
    assert entry.options.map_entry


def test_bytes_that_are_no_request_end_the_stream(channel):
    for data in [b"\x22\xff\xff\xff\xff\x0f", b"\x22\x02\xff\xfe", b"\x22\xa8\x46" + b"x" * 9000]:
        call = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(iter([data]), timeout=30)
        with pytest.raises(grpc.RpcError) as caught:
            list(call)
        assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_a_key_is_asked_for_here_but_not_by_health(locked):
    metadata = [("authorization", "Bearer " + KEY)]
    with connect(locked) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            ask(channel, [pb.ServerReflectionRequest(list_services="*")])
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest(), timeout=20).status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        answers = list(stub.ServerReflectionInfo(iter([pb.ServerReflectionRequest(list_services="*")]), metadata=metadata))
        assert len(answers[0].list_services_response.service) >= len(SERVICES)
