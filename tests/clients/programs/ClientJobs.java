import com.google.api.gax.rpc.NotFoundException;
import com.google.cloud.aiplatform.v1.CustomJob;
import com.google.cloud.aiplatform.v1.CustomJobSpec;
import com.google.cloud.aiplatform.v1.JobServiceClient;
import com.google.cloud.aiplatform.v1.JobServiceSettings;
import com.google.cloud.aiplatform.v1.JobState;
import com.google.cloud.aiplatform.v1.LocationName;
import com.google.cloud.aiplatform.v1.MachineSpec;
import com.google.cloud.aiplatform.v1.PythonPackageSpec;
import com.google.cloud.aiplatform.v1.WorkerPoolSpec;
import java.util.EnumSet;

/** A job by google-cloud-aiplatform for Java, with the regional endpoint as in its own samples. */
public class ClientJobs {
  public static void main(String[] args) throws Exception {
    JobServiceSettings settings =
        JobServiceSettings.newBuilder().setEndpoint("us-central1-aiplatform.googleapis.com:443").build();
    try (JobServiceClient jobs = JobServiceClient.create(settings)) {
      PythonPackageSpec trainer = PythonPackageSpec.newBuilder().setExecutorImageUri(args[0])
          .addPackageUris("gs://packages/trainer.tar.gz").setPythonModule("trainer.task").addArgs("print('ran')").build();
      WorkerPoolSpec pool = WorkerPoolSpec.newBuilder().setReplicaCount(1).setPythonPackageSpec(trainer)
          .setMachineSpec(MachineSpec.newBuilder().setMachineType("n1-standard-4")).build();
      CustomJob job = jobs.createCustomJob(LocationName.of("my-project", "us-central1"), CustomJob.newBuilder()
          .setDisplayName("by-java-client").setJobSpec(CustomJobSpec.newBuilder().addWorkerPoolSpecs(pool)).build());
      while (!EnumSet.of(JobState.JOB_STATE_SUCCEEDED, JobState.JOB_STATE_FAILED).contains(job.getState())) {
        job = jobs.getCustomJob(job.getName());
      }
      System.out.println("grpc " + job.getState());
      jobs.deleteCustomJobAsync(job.getName()).get();
      try {
        jobs.getCustomJob(job.getName());
      } catch (NotFoundException error) {
        System.out.println("deleted " + error.getStatusCode().getCode());
      }
    }
  }
}
