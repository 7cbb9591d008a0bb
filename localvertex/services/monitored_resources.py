"""The monitored resource types to which Cloud Logging accepts entries, and their labels."""

from __future__ import annotations

import re
from collections.abc import Iterable

_TABLE = """
abuseevent.googleapis.com/Location: resource_container location
aiplatform.googleapis.com/DeploymentResourcePool: resource_container location deployment_resource_pool_id
aiplatform.googleapis.com/Endpoint: resource_container location endpoint_id
aiplatform.googleapis.com/Featurestore: resource_container location featurestore_id
aiplatform.googleapis.com/Index: resource_container location index_id
aiplatform.googleapis.com/IndexEndpoint: resource_container location index_endpoint_id
aiplatform.googleapis.com/ModelMonitor: resource_container location model_monitor_id
aiplatform.googleapis.com/PipelineJob: resource_container location pipeline_job_id
aiplatform.googleapis.com/ReasoningEngine: resource_container location reasoning_engine_id
aiplatform.googleapis.com/ServerlessRayJob: resource_container location job_id
alloydb.googleapis.com/Cluster: resource_container location cluster_id
alloydb.googleapis.com/Instance: resource_container location cluster_id instance_id
anthos_l4lb: project_id location kind group_name hostname
api: project_id service method version location
apigateway.googleapis.com/Gateway: resource_container location gateway_id
apigee.googleapis.com/Environment: resource_container org env location
apigee.googleapis.com/Instance: resource_container org location instance_id
app_script_function: project_id invocation_type function_name
artifactregistry.googleapis.com/Project: resource_container location
artifactregistry.googleapis.com/Repository: resource_container location repository_id
assistant_action: project_id version_id action_id
assistant_action_project: project_id
audited_resource: project_id service method
authztoolkitcontrol.googleapis.com/TargetAssociation: resource_container location target_association_id
autoscaler: project_id location autoscaler_id autoscaler_name instance_group_manager_id instance_group_manager_name
aws_alb_load_balancer: project_id name region aws_account
aws_cloudfront_distribution: project_id distribution_id region aws_account
aws_ec2_instance: project_id instance_id aws_account region
aws_elasticache_cluster: project_id cluster_id region aws_account
aws_lambda_function: project_id function_name region aws_account
aws_rds_database: project_id name region aws_account
aws_s3_bucket: project_id bucket_name region aws_account
aws_sqs_queue: project_id queue region aws_account
backupdr.googleapis.com/BackupDRProject: resource_container location
backupdr.googleapis.com/BackupPlan: resource_container location backup_plan_id
backupdr.googleapis.com/BackupPlanAssociation: resource_container location backup_plan_association_id
backupdr.googleapis.com/BackupRecoveryAppliance: resource_container location backup_recovery_appliance_id
    management_server_id
backupdr.googleapis.com/BackupVault: resource_container location backup_vault_id
backupdr.googleapis.com/ManagementConsole: resource_container location management_server_id
baremetalsolution.googleapis.com/Instance: resource_container location instance_id
batch.googleapis.com/Job: resource_container location job_id
beyondcorp.googleapis.com/SecurityGateway: resource_container location security_gateway_id
bigquery.googleapis.com/ManagedRoutineInvocation: resource_container location query_job_id routine_project_id
    routine_dataset_id routine_id
bigquery.googleapis.com/SparkJob: resource_container location spark_job_id
bigquery_biengine_model: project_id location model_id
bigquery_dataset: project_id dataset_id
bigquery_dts_config: project_id location config_id
bigquery_project: project_id location
bigquery_resource: project_id
billing_account: project_id account_id
build: project_id build_id build_trigger_id
businessaicode.googleapis.com/BAICInstance: resource_container location
certificatemanager.googleapis.com/Project: resource_container location
client_auth_config_brand: project_id brand_id
client_auth_config_client: project_id client_id
cloud_composer_environment: project_id location environment_name
cloud_dataproc_batch: project_id location batch_id
cloud_dataproc_cluster: project_id cluster_name cluster_uuid region
cloud_dataproc_job: project_id region job_id job_uuid
cloud_dataproc_session: project_id location session_id
cloud_debugger_resource: project_id app
cloud_function: project_id function_name region
cloud_osconfig_patch_job: project_id patch_job_id
cloud_run_job: project_id job_name location
cloud_run_revision: project_id service_name revision_name location configuration_name
cloud_run_worker_pool: project_id worker_pool_name revision_name location configuration_name
cloud_scheduler_job: project_id location job_id
cloud_tasks_queue: project_id queue_id target_type location
cloudaicompanion.googleapis.com/Instance: resource_container location instance_id
cloudcontrolspartner.googleapis.com/Location: resource_container location
clouddeploy.googleapis.com/DeliveryPipeline: resource_container location pipeline_id
cloudkms_cryptokey: project_id location key_ring_id crypto_key_id
cloudkms_cryptokeyversion: project_id location key_ring_id crypto_key_id crypto_key_version_id
cloudkms_keyring: project_id location key_ring_id
cloudml_job: project_id job_id region
cloudml_model_version: project_id model_id version_id region
cloudsql_database: project_id database_id region
cloudvolumesgcp-api.netapp.com/CloudVolume: resource_container location volume_id service_type name
connectors.googleapis.com/Connection: resource_container location connection
consumed_api: project_id service method version location credential_id
contactcenteraiplatform.googleapis.com/ContactCenter: resource_container resource_id location
container: project_id cluster_name namespace_id instance_id pod_id container_name zone
container.googleapis.com/Cluster: resource_container location cluster_name
container.googleapis.com/NodePool: resource_container location cluster_name node_pool_name
contextawareaccess.googleapis.com/Location: resource_container location
csr_repository: project_id name
dataflow_step: project_id job_id step_id job_name region
dataform.googleapis.com/Repository: resource_container location repository_id
datafusion.googleapis.com/InstanceV2: resource_container org_id location edition is_private_ip_enabled version
    instance_id namespace
datafusion.googleapis.com/InstanceV3: resource_container location edition is_private_ip_enabled version instance_id
datafusion.googleapis.com/PipelineV2: resource_container org_id location edition is_private_ip_enabled version
    instance_id namespace pipeline_id run_id
datamigration.googleapis.com/MigrationJob: resource_container location migration_job_id
dataplex.googleapis.com/Asset: resource_container location lake_id zone_id asset_id
dataplex.googleapis.com/DataScan: resource_container location datascan_id
dataplex.googleapis.com/EntryLink: resource_container location entry_group_id entry_link_id
dataplex.googleapis.com/Environment: resource_container location lake_id environment_id
dataplex.googleapis.com/Glossary: resource_container location glossary_id
dataplex.googleapis.com/GlossaryCategory: resource_container location glossary_id glossary_category_id
dataplex.googleapis.com/GlossaryTerm: resource_container location glossary_id glossary_term_id
dataplex.googleapis.com/GovernanceRule: resource_container location rule_id
dataplex.googleapis.com/Lake: resource_container location lake_id
dataplex.googleapis.com/Project: resource_container location
dataplex.googleapis.com/Task: resource_container location lake_id task_id
dataplex.googleapis.com/Zone: resource_container location lake_id zone_id
datastore_database: project_id database_id
datastore_index: project_id database_id index_id
datastream.googleapis.com/Stream: resource_container location stream_id
dell_emc_cloud_onefs_cluster: project_id location cluster_id
deployment: project_id name
deployment_manager_manifest: project_id manifest_name deployment_name
deployment_manager_operation: project_id operation_name
deployment_manager_resource: project_id resource_name deployment_name
deployment_manager_type: project_id name
dialogflow.googleapis.com/Location: resource_container location
discoveryengine.googleapis.com/Agent: resource_container location assistant_id engine_id agent_id
discoveryengine.googleapis.com/AgentToolInvocation: resource_container location assistant_id engine_id agent_id
    tool_id
discoveryengine.googleapis.com/DataConnector: resource_container location connector_id data_source
dns_managed_zone: project_id zone_name location
dns_policy: project_id policy_name location
dns_query: project_id target_name location target_type source_type
dns_resource_record_set: project_id name type location
dns_response_policy: project_id location response_policy_name
dns_response_policy_rule: project_id location response_policy_name response_policy_rule_name
edgecache.googleapis.com/EdgeCacheRouteRule: resource_container location service_name path_matcher_name matched_path
    route_type route_destination
eventarc.googleapis.com/Enrollment: resource_container location enrollment_id
eventarc.googleapis.com/GoogleApiSource: resource_container location google_api_source_id
eventarc.googleapis.com/MessageBus: resource_container location message_bus_id
eventarc.googleapis.com/Pipeline: resource_container location pipeline_id
financialservices.googleapis.com/BacktestResult: resource_container location instance_id backtest_result_id
financialservices.googleapis.com/EngineConfig: resource_container location instance_id engine_config_id
financialservices.googleapis.com/Instance: resource_container location instance_id
financialservices.googleapis.com/PredictionResult: resource_container location instance_id prediction_result_id
firebase_auth: project_id
firebase_domain: project_id site_name domain_name
firebase_namespace: project_id table_name location
firebaseapphosting.googleapis.com/Backend: resource_container location backend_id
firebasecrashlytics.googleapis.com/App: resource_container location app_id
firebaserules_release: project_id release_name region
firebaserules_ruleset: project_id ruleset_name region
firebasevertexai.googleapis.com/Model: resource_container location publisher_id model_id
firebasevertexai.googleapis.com/PromptTemplate: resource_container location template_id
firestore.googleapis.com/Database: resource_container location database_id
fleetengine.googleapis.com/DeliveryFleet: resource_container location
fleetengine.googleapis.com/Fleet: resource_container location
folder: folder_id
gae_app: project_id module_id version_id zone
gateway_scope: project_id location scope
gce_autoscaler: project_id autoscaler_id location
gce_backend_bucket: project_id backend_bucket_id
gce_backend_service: project_id backend_service_id location
gce_client_ssl_policy: project_id client_ssl_policy_id
gce_commitment: project_id commitment_id location
gce_disk: project_id disk_id zone
gce_firewall_rule: project_id firewall_rule_id
gce_forwarding_rule: project_id forwarding_rule_id region
gce_health_check: project_id health_check_id
gce_image: project_id image_id
gce_instance: project_id instance_id zone
gce_instance_group: project_id instance_group_id instance_group_name location
gce_instance_group_manager: project_id instance_group_manager_id instance_group_manager_name location
gce_instance_template: project_id instance_template_id instance_template_name
gce_license: project_id license_id
gce_network: project_id network_id
gce_network_endpoint_group: project_id zone network_endpoint_group_id
gce_network_region: project_id network_id region
gce_node_group: project_id node_group_id zone
gce_node_template: project_id node_template_id region
gce_operation: project_id operation_name location
gce_packet_mirroring: project_id packet_mirroring_id region
gce_project: project_id
gce_reserved_address: project_id reserved_address_id location
gce_resource_policy: project_id resource_policy_id region
gce_route: project_id route_id
gce_router: project_id router_id region
gce_service_attachment: project_id region service_attachment_id
gce_snapshot: project_id snapshot_id
gce_ssl_certificate: project_id ssl_certificate_id ssl_certificate_name
gce_subnetwork: project_id subnetwork_id subnetwork_name location
gce_target_http_instance: project_id target_http_instance_id zone
gce_target_http_proxy: project_id target_http_proxy_id
gce_target_https_proxy: project_id target_https_proxy_id
gce_target_pool: project_id target_pool_id zone
gce_target_ssl_proxy: project_id target_ssl_proxy_id
gce_url_map: project_id url_map_id
gcs_bucket: project_id bucket_name location
geminidataanalytics.googleapis.com/Location: resource_container location
generic_node: project_id location namespace node_id
generic_task: project_id location namespace job task_id
genomics_dataset: project_id dataset_id
genomics_operation: project_id operation_id
gke_cluster: project_id cluster_name location
gke_nodepool: project_id nodepool_name location cluster_name
gkebackup.googleapis.com/BackupPlan: resource_container location backup_plan_id
gkebackup.googleapis.com/RestorePlan: resource_container location restore_plan_id
global: project_id
healthcare_pipeline_job: project_id location dataset_id pipeline_job_id
http_external_regional_lb_rule: project_id network_name region url_map_name forwarding_rule_name target_proxy_name
    matched_url_path_rule backend_target_name backend_target_type backend_name backend_type backend_scope
    backend_scope_type
http_load_balancer: project_id forwarding_rule_name url_map_name target_proxy_name backend_service_name zone
iam_role: project_id role_name
identitytoolkit_project: project_id
identitytoolkit_tenant: project_id tenant_name
ids.googleapis.com/Endpoint: resource_container location id
integrations.googleapis.com/IntegrationVersion: resource_container location product integration version
interconnect: project_id interconnect
interconnect_attachment: project_id attachment interconnect region interconnect_project
internal_http_lb_rule: project_id network_name region url_map_name forwarding_rule_name target_proxy_name
    matched_url_path_rule backend_target_name backend_target_type backend_name backend_type backend_scope
    backend_scope_type
istio_control_plane: project_id mesh_uid location revision build_id owner
k8s_cluster: project_id location cluster_name
k8s_container: project_id location cluster_name namespace_name pod_name container_name
k8s_control_plane_component: project_id location cluster_name component_name component_location
k8s_node: project_id location cluster_name node_name
k8s_pod: project_id location cluster_name namespace_name pod_name
k8s_service: project_id location cluster_name namespace_name service_name
l4_proxy_rule: project_id network_name region load_balancing_scheme protocol forwarding_rule_name target_proxy_name
    backend_target_name backend_target_type backend_name backend_type backend_scope backend_scope_type
livestream.googleapis.com/Channel: resource_container location channel_id
loadbalancing.googleapis.com/ExternalNetworkLoadBalancerRule: project_id region backend_network_name
    backend_target_type backend_service_name primary_target_pool target_pool forwarding_rule_name backend_group_name
    backend_group_type backend_group_scope backend_subnetwork_name backend_zone
loadbalancing.googleapis.com/InternalNetworkLoadBalancerRule: project_id region backend_network_name
    backend_service_name forwarding_rule_name backend_group_name backend_group_type backend_group_scope
    backend_subnetwork_name
logging_bucket: project_id bucket_id location source_resource_container monitored_resource_type
logging_exclusion: project_id name
logging_log: project_id name
logging_sink: project_id name destination
lustre.googleapis.com/Instance: resource_container location instance_id
managed_service: project_id service_name producer_project_id
managedflink.googleapis.com/Deployment: resource_container location deployment_id
managedflink.googleapis.com/Job: resource_container location deployment_id job_id
managedkafka.googleapis.com/Cluster: resource_container location cluster_id
managedkafka.googleapis.com/ConnectCluster: resource_container location cluster_id
managedkafka.googleapis.com/Location: resource_container location
managedkafka.googleapis.com/SchemaRegistry: resource_container location schema_registry_id
memcache.googleapis.com/MemcacheNode: resource_container service location memcache_region instance_id node_id uid
memorystore.googleapis.com/Instance: resource_container location instance_id instance_uid
mesh: project_id location mesh
metastore.googleapis.com/Federation: resource_container location federation_id
metastore.googleapis.com/Service: resource_container location service_id
metric: project_id name
microsoft_ad_domain: project_id fqdn location
ml_job: project_id job_id task_name
mobilitybilling.googleapis.com/Project: resource_container location
modelarmor.googleapis.com/SanitizeOperation: resource_container location template_id
modelarmor.googleapis.com/Template: resource_container location template_id
nat_gateway: project_id region router_id gateway_name
netapp_cloud_volume: project_id location volume_id
network_security_policy: project_id location policy_name
networking.googleapis.com/Location: project_id location
networkmanagement.googleapis.com/MonitoringPoint: resource_container location network_monitoring_provider_id
    monitoring_point_id
networkmanagement.googleapis.com/NetworkPath: resource_container location network_monitoring_provider_id path_id
networkmanagement.googleapis.com/WebPath: resource_container location network_monitoring_provider_id path_id
networksecurity.googleapis.com/DnsThreatDetector: resource_container id location
networksecurity.googleapis.com/FirewallEndpoint: resource_container location id
networksecurity.googleapis.com/ProtectedEndpoint: project_id location vip
networkservices.googleapis.com/Gateway: resource_container location network_name gateway_type gateway_name
networkservices.googleapis.com/MulticastGroup: resource_container location multicast_domain_id
    multicast_group_range_id multicast_ip
networkservices.googleapis.com/WasmPluginVersion: resource_container location plugin_name plugin_version
oracledatabase.googleapis.com/AutonomousDatabase: resource_container location autonomous_database_id
oracledatabase.googleapis.com/CloudExadataInfrastructure: resource_container location
    cloud_exadata_infrastructure_id
oracledatabase.googleapis.com/CloudVmCluster: resource_container location cloud_exadata_infrastructure_id
    cloud_vm_cluster_id
oracledatabase.googleapis.com/ContainerDatabase: resource_container location cloud_exadata_infrastructure_id
    cloud_vm_cluster_id container_database_name
oracledatabase.googleapis.com/DbSystem: resource_container location db_system_id
oracledatabase.googleapis.com/DbSystemContainerDatabase: resource_container location db_system_id
    container_database_name
oracledatabase.googleapis.com/DbSystemPluggableDatabase: resource_container location db_system_id
    container_database_name pluggable_database_name
oracledatabase.googleapis.com/ExadbContainerDatabase: resource_container location exadb_vm_cluster_id
    container_database_name
oracledatabase.googleapis.com/ExadbPluggableDatabase: resource_container location exadb_vm_cluster_id
    container_database_name pluggable_database_name
oracledatabase.googleapis.com/ExadbVmCluster: resource_container location exadb_vm_cluster_id
oracledatabase.googleapis.com/ExascaleDbStorageVault: resource_container location exascale_db_storage_vault_id
oracledatabase.googleapis.com/PluggableDatabase: resource_container location cloud_exadata_infrastructure_id
    cloud_vm_cluster_id container_database_name pluggable_database_name
organization: organization_id
produced_api: project_id service method version location consumer_id
project: project_id
pubsub_snapshot: project_id snapshot_id
pubsub_subscription: project_id subscription_id
pubsub_topic: project_id topic_id
recaptchaenterprise.googleapis.com/Key: resource_container location key_id
recommender: project_id recommender_id location
recommender_insight_type: project_id insight_type_id location
redis_instance: project_id region instance_id node_id
remotebuild_instance: project_id location instance_id
reported_errors: project_id
saasservicemgmt.googleapis.com/Rollout: resource_container location rollout_id
saasservicemgmt.googleapis.com/Unit: resource_container location unit_id
secretmanager.googleapis.com/Secret: resource_container location secret_id
sensitiveaction.googleapis.com/Location: resource_container location
service_account: project_id email_id unique_id
service_config: project_id service_name service_config_id
service_rollout: project_id service_name rollout_id
servicedirectory_namespace: project_id location namespace_name
servicedirectory_service: project_id location namespace_name service_name
servicehealth.googleapis.com/Artifact: resource_container location artifact_id
servicehealth.googleapis.com/Event: resource_container location event_id
serviceusage_service: project_id service_name
serviceuser_service: project_id service_name
spanner_instance: project_id instance_id location instance_config
storage.googleapis.com/Client: project_id location cloud_platform host_id instance_id api
storage_transfer_job: project_id job_id
stream.googleapis.com/StreamInstance: resource_container location stream_instance_id
tcp_ssl_proxy_rule: project_id region backend_target_name backend_target_type forwarding_rule_name target_proxy_name
    backend_name backend_type backend_scope backend_scope_type
testservice_matrix: project_id matrix_id
threat_detector: project_id detector_name
tpu_worker: project_id zone node_id worker_id
transferappliance.googleapis.com/Appliance: resource_container location appliance_id
uptime_url: project_id host
videostitcher.googleapis.com/Project: resource_container location
visionai.googleapis.com/Application: resource_container location application_id
vmmigration.googleapis.com/MigratingVM: resource_container location source vm
vmmigration.googleapis.com/Source: resource_container location source
vpc_access_connector: project_id location connector_name
vpc_flow_logs_config: resource_container name location
vpn_gateway: project_id gateway_id region
vpn_tunnel: project_id tunnel_id tunnel_name location
workflows.googleapis.com/Workflow: resource_container location workflow_id
"""
"""Each type with its labels, as https://docs.cloud.google.com/logging/docs/api/v2/resource-list shows them (generated by Google on
2026-04-02, read 2026-11-28).
"""
_OF_API = re.compile(r"[a-z][a-z0-9.-]*\.[a-z]+/[A-Za-z]\w*", re.ASCII)


def _types() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    kind = ""
    for line in _TABLE.strip().splitlines():
        # An indented line continues the labels of the line before it.
        if not line.startswith(" "):
            kind, _, line = line.partition(":")
        found[kind] = (*found.get(kind, ()), *line.split())
    return found


TYPES = _types()
"""The labels of each type."""
DROPPED = {("gce_instance", "instance_name")}
"""Labels that the service leaves out of an entry without a word (google-cloud-go issue 4272)."""


def is_monitored(kind: str) -> bool:
    """Whether entries may have a resource of this type.

    A type that is named after its API, as `aiplatform.googleapis.com/Model`, need not be in the list: Google adds such types often.
    """
    return kind in TYPES or _OF_API.fullmatch(kind) is not None


def extra_label(kind: str, labels: Iterable[str]) -> str:
    """Return the first label that a resource of this type does not have, "" where all fit or the type's labels are not known."""
    return next((one for one in labels if kind in TYPES and one not in TYPES[kind]), "")
