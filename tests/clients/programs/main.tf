# A bucket, an object and a schedule, as a user writes them.
terraform {
  required_providers {
    google = { source = "hashicorp/google" }
  }
}

provider "google" {
  project = "my-project"
  region  = "us-central1"
}

resource "google_storage_bucket" "models" {
  name                        = "by-terraform"
  location                    = "US"
  uniform_bucket_level_access = true
  force_destroy               = true
}

resource "google_storage_bucket_object" "readme" {
  bucket  = google_storage_bucket.models.name
  name    = "folder/readme.txt"
  content = "by terraform"
}

resource "google_cloud_scheduler_job" "nightly" {
  name     = "nightly"
  schedule = "0 3 * * *"
  http_target {
    uri         = "http://127.0.0.1:9/"
    http_method = "POST"
    body        = base64encode("{}")
  }
}
