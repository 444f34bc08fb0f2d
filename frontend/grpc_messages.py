"""The messages of gRPC: the Open Inference Protocol with Triton's additions, health, reflection.

Names and numbers are those of the protocols: KServe's and Triton's `inference` package, of which
what is served here is there, and `grpc.health.v1` and `grpc.reflection`, which are gRPC's own.
"""

from typing import Final

from ringbatch.frontend.grpc_schema import Message, Package, Schema

_REPOSITORY_MODEL: Final = (
    "string repository_name=1, string model_name=2, map ModelRepositoryParameter parameters=3"
)
_TENSOR: Final = (
    "string name=1, string datatype=2, rep int64 shape=3, map InferParameter parameters=4, "
    "InferTensorContents contents=5"
)
_STRETCH: Final = "string name=1, string key=2, uint64 offset=3, uint64 byte_size=4"
_NAMED: Final = "string name=1, string version=2"
_INFERENCE: Final = Package(
    "inference",
    {
        "ServerLiveRequest": "",
        "ServerLiveResponse": "bool live=1",
        "ServerReadyRequest": "",
        "ServerReadyResponse": "bool ready=1",
        "ModelReadyRequest": _NAMED,
        "ModelReadyResponse": "bool ready=1",
        "ServerMetadataRequest": "",
        "ServerMetadataResponse": "string name=1, string version=2, rep string extensions=3",
        "ModelMetadataRequest": _NAMED,
        "ModelMetadataResponse": (
            "string name=1, rep string versions=2, string platform=3, "
            "rep ModelMetadataResponse.TensorMetadata inputs=4, "
            "rep ModelMetadataResponse.TensorMetadata outputs=5, map string properties=6"
        ),
        "ModelMetadataResponse.TensorMetadata": (
            "string name=1, string datatype=2, rep int64 shape=3"
        ),
        "InferParameter": (
            "parameter_choice bool bool_param=1, parameter_choice int64 int64_param=2, "
            "parameter_choice string string_param=3, parameter_choice double double_param=4, "
            "parameter_choice uint64 uint64_param=5"
        ),
        "InferTensorContents": (
            "rep bool bool_contents=1, rep int32 int_contents=2, rep int64 int64_contents=3, "
            "rep uint32 uint_contents=4, rep uint64 uint64_contents=5, "
            "rep float fp32_contents=6, rep double fp64_contents=7, rep bytes bytes_contents=8"
        ),
        "ModelInferRequest": (
            "string model_name=1, string model_version=2, string id=3, "
            "map InferParameter parameters=4, rep ModelInferRequest.InferInputTensor inputs=5, "
            "rep ModelInferRequest.InferRequestedOutputTensor outputs=6, "
            "rep bytes raw_input_contents=7"
        ),
        "ModelInferRequest.InferInputTensor": _TENSOR,
        "ModelInferRequest.InferRequestedOutputTensor": (
            "string name=1, map InferParameter parameters=2"
        ),
        "ModelInferResponse": (
            "string model_name=1, string model_version=2, string id=3, "
            "map InferParameter parameters=4, rep ModelInferResponse.InferOutputTensor outputs=5, "
            "rep bytes raw_output_contents=6"
        ),
        "ModelInferResponse.InferOutputTensor": _TENSOR,
        "ModelStreamInferResponse": "string error_message=1, ModelInferResponse infer_response=2",
        "ModelStatisticsRequest": _NAMED,
        "ModelStatisticsResponse": "rep ModelStatistics model_stats=1",
        "ModelStatistics": (
            "string name=1, string version=2, uint64 last_inference=3, uint64 inference_count=4, "
            "uint64 execution_count=5, InferStatistics inference_stats=6, "
            "rep InferBatchStatistics batch_stats=7, rep MemoryUsage memory_usage=8, "
            "map InferResponseStatistics response_stats=9"
        ),
        "StatisticDuration": "uint64 count=1, uint64 ns=2",
        "InferStatistics": (
            "StatisticDuration success=1, StatisticDuration fail=2, StatisticDuration queue=3, "
            "StatisticDuration compute_input=4, StatisticDuration compute_infer=5, "
            "StatisticDuration compute_output=6, StatisticDuration cache_hit=7, "
            "StatisticDuration cache_miss=8"
        ),
        "InferResponseStatistics": (
            "StatisticDuration compute_infer=1, StatisticDuration compute_output=2, "
            "StatisticDuration success=3, StatisticDuration fail=4, "
            "StatisticDuration empty_response=5, StatisticDuration cancel=6"
        ),
        "InferBatchStatistics": (
            "uint64 batch_size=1, StatisticDuration compute_input=2, "
            "StatisticDuration compute_infer=3, StatisticDuration compute_output=4"
        ),
        "MemoryUsage": "string type=1, int64 id=2, uint64 byte_size=3",
        "RepositoryIndexRequest": "string repository_name=1, bool ready=2",
        "RepositoryIndexResponse": "rep RepositoryIndexResponse.ModelIndex models=1",
        "RepositoryIndexResponse.ModelIndex": (
            "string name=1, string version=2, string state=3, string reason=4"
        ),
        "ModelRepositoryParameter": (
            "parameter_choice bool bool_param=1, parameter_choice int64 int64_param=2, "
            "parameter_choice string string_param=3, parameter_choice bytes bytes_param=4"
        ),
        "RepositoryModelLoadRequest": _REPOSITORY_MODEL,
        "RepositoryModelLoadResponse": "",
        "RepositoryModelUnloadRequest": _REPOSITORY_MODEL,
        "RepositoryModelUnloadResponse": "",
        "SystemSharedMemoryStatusRequest": "string name=1",
        "SystemSharedMemoryStatusResponse": (
            "map SystemSharedMemoryStatusResponse.RegionStatus regions=1"
        ),
        "SystemSharedMemoryStatusResponse.RegionStatus": _STRETCH,
        "SystemSharedMemoryRegisterRequest": _STRETCH,
        "SystemSharedMemoryRegisterResponse": "",
        "SystemSharedMemoryUnregisterRequest": "string name=1",
        "SystemSharedMemoryUnregisterResponse": "",
        "CudaSharedMemoryStatusRequest": "string name=1",
        "CudaSharedMemoryStatusResponse": (
            "map CudaSharedMemoryStatusResponse.RegionStatus regions=1"
        ),
        "CudaSharedMemoryStatusResponse.RegionStatus": (
            "string name=1, uint64 device_id=2, uint64 byte_size=3"
        ),
        "CudaSharedMemoryRegisterRequest": (
            "string name=1, bytes raw_handle=2, int64 device_id=3, uint64 byte_size=4"
        ),
        "CudaSharedMemoryRegisterResponse": "",
        "CudaSharedMemoryUnregisterRequest": "string name=1",
        "CudaSharedMemoryUnregisterResponse": "",
    },
    {},
    {
        "GRPCInferenceService": {
            **{
                name: f"{name}Request -> {name}Response"
                for name in (
                    "ServerLive",
                    "ServerReady",
                    "ModelReady",
                    "ServerMetadata",
                    "ModelMetadata",
                    "ModelInfer",
                    "ModelStatistics",
                    "RepositoryIndex",
                    "RepositoryModelLoad",
                    "RepositoryModelUnload",
                    "SystemSharedMemoryStatus",
                    "SystemSharedMemoryRegister",
                    "SystemSharedMemoryUnregister",
                    "CudaSharedMemoryStatus",
                    "CudaSharedMemoryRegister",
                    "CudaSharedMemoryUnregister",
                )
            },
            "ModelStreamInfer": "stream ModelInferRequest -> stream ModelStreamInferResponse",
        }
    },
)
_HEALTH: Final = Package(
    "grpc.health.v1",
    {
        "HealthCheckRequest": "string service=1",
        "HealthCheckResponse": "HealthCheckResponse.ServingStatus status=1",
    },
    {"HealthCheckResponse.ServingStatus": "UNKNOWN SERVING NOT_SERVING SERVICE_UNKNOWN"},
    {
        "Health": {
            "Check": "HealthCheckRequest -> HealthCheckResponse",
            "Watch": "HealthCheckRequest -> stream HealthCheckResponse",
        }
    },
)
_REFLECTION: Final = {
    "ServerReflectionRequest": (
        "string host=1, message_request string file_by_filename=3, "
        "message_request string file_containing_symbol=4, "
        "message_request ExtensionRequest file_containing_extension=5, "
        "message_request string all_extension_numbers_of_type=6, "
        "message_request string list_services=7"
    ),
    "ExtensionRequest": "string containing_type=1, int32 extension_number=2",
    "ServerReflectionResponse": (
        "string valid_host=1, ServerReflectionRequest original_request=2, "
        "message_response FileDescriptorResponse file_descriptor_response=4, "
        "message_response ExtensionNumberResponse all_extension_numbers_response=5, "
        "message_response ListServiceResponse list_services_response=6, "
        "message_response ErrorResponse error_response=7"
    ),
    "FileDescriptorResponse": "rep bytes file_descriptor_proto=1",
    "ExtensionNumberResponse": "string base_type_name=1, rep int32 extension_number=2",
    "ListServiceResponse": "rep ServiceResponse service=1",
    "ServiceResponse": "string name=1",
    "ErrorResponse": "int32 error_code=1, string error_message=2",
}

REFLECTION_VERSIONS: Final = ("v1", "v1alpha")
"""Of the reflection protocol: the same messages under two names; clients ask for either."""
INFERENCE_SERVICE: Final = "inference.GRPCInferenceService"
HEALTH_SERVICE: Final = "grpc.health.v1.Health"

SCHEMA: Final = Schema(
    [
        _INFERENCE,
        _HEALTH,
        *(
            Package(
                f"grpc.reflection.{version}",
                _REFLECTION,
                {},
                {
                    "ServerReflection": {
                        "ServerReflectionInfo": (
                            "stream ServerReflectionRequest -> stream ServerReflectionResponse"
                        )
                    }
                },
            )
            for version in REFLECTION_VERSIONS
        ),
    ]
)


def inference(name: str) -> Message:
    """The class of one of the inference protocol's messages."""
    return SCHEMA.message(f"inference.{name}")
