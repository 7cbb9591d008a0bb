"""The monitored resource types to which Cloud Logging accepts entries."""

from __future__ import annotations

import re

_PLAIN = frozenset(
    """
    anthos_l4lb api app_script_function assistant_action assistant_action_project audited_resource autoscaler
    aws_ec2_instance aws_s3_bucket baremetalsolution_instance bigquery_biengine_model bigquery_dataset bigquery_dts_config
    bigquery_dts_run bigquery_project bigquery_resource bigquery_table build client_auth_config_brand
    client_auth_config_client cloud_composer_environment cloud_composer_workflow cloud_dataproc_batch
    cloud_dataproc_cluster cloud_dataproc_job cloud_dataproc_session cloud_debugger_resource cloud_function
    cloud_run_job cloud_run_revision cloud_run_worker_pool cloud_scheduler_job cloud_tasks_queue cloudiot_device
    cloudiot_device_registry cloudkms_cryptokey cloudkms_cryptokeyversion cloudkms_keyring cloudml_job
    cloudml_model_version cloudsql_database cloudsql_instance cloudvolumesgcp_volume consumed_api consumer_quota container
    csr_repository dataflow_step dataproc_cluster datastore_database datastore_index deployment deployment_manager_type
    dns_managed_zone dns_policy dns_query dns_response_policy external_vpn_gateway firebase_domain firebase_namespace
    firestore_database firestore_instance folder gae_app gae_instance gce_autoscaler gce_backend_bucket
    gce_backend_service gce_client_ssl_policy gce_commitment gce_disk gce_firewall_rule gce_forwarding_rule
    gce_health_check gce_image gce_instance gce_instance_group gce_instance_group_manager gce_instance_template
    gce_license gce_network gce_network_region gce_node_group gce_node_template gce_operation gce_packet_mirroring
    gce_project gce_reserved_address gce_resource_policy gce_route gce_router gce_security_policy gce_snapshot
    gce_ssl_certificate gce_subnetwork gce_target_http_instance gce_target_http_proxy gce_target_https_proxy
    gce_target_instance gce_target_pool gce_target_ssl_proxy gce_target_vpn_gateway gce_url_map gce_vpn_tunnel
    gce_zone_network_health gcs_bucket generic_node generic_task genomics_operation gke_cluster gke_container gke_nodepool
    global healthcare_annotation_store healthcare_consent_store healthcare_dataset healthcare_dicom_store
    healthcare_fhir_store healthcare_hl7_v2_store http_external_regional_lb_rule http_load_balancer https_lb_rule iam_role
    identitytoolkit_project identitytoolkit_tenant instance_group interconnect interconnect_attachment
    internal_http_lb_rule internal_network_lb_rule internal_tcp_lb_rule internal_udp_lb_rule istio_canonical_service
    istio_control_plane k8s_cluster k8s_container k8s_control_plane_component k8s_entity k8s_node k8s_pod k8s_scale
    k8s_service knative_broker knative_revision knative_trigger l4_proxy_rule lb_rule logging_bucket logging_exclusion
    logging_log logging_sink managed_service mesh metric microsoft_ad_domain ml_job nat_gateway net_lb_rule
    network_security_policy organization producer_quota producer_quota_resource project pubsub_snapshot
    pubsub_subscription pubsub_topic pubsublite_reservation pubsublite_subscription_partition pubsublite_topic_partition
    recommender recommender_insight redis_instance reported_errors security_scanner_scan_config service_account
    service_config service_rollout spanner_instance storage_transfer_job tcp_lb_rule tcp_ssl_proxy_rule
    testservice_matrix threat_detector tpu_worker transfer_job transfer_service_agent udp_lb_rule uptime_url user
    vmware_vcenter vpc_access_connector vpn_gateway vpn_tunnel workflow
    """.split()
)
"""Types with a plain name; Google has named later types after their API.

Not compared with Google's own list (https://docs.cloud.google.com/logging/docs/api/v2/resource-list): a rare type may be missing.
"""
_OF_API = re.compile(r"[a-z][a-z0-9.-]*\.[a-z]+/[A-Za-z]\w*", re.ASCII)


def is_monitored(kind: str) -> bool:
    """Whether entries may have a resource of this type: `gce_instance`, or one that is named after its API, as `aiplatform.googleapis.com/Model`."""
    return kind in _PLAIN or _OF_API.fullmatch(kind) is not None
