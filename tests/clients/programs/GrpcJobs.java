import com.google.auth.oauth2.GoogleCredentials;
import com.google.cloud.aiplatform.v1.CreateCustomJobRequest;
import com.google.cloud.aiplatform.v1.CustomJob;
import com.google.cloud.aiplatform.v1.CustomJobSpec;
import com.google.cloud.aiplatform.v1.DeleteCustomJobRequest;
import com.google.cloud.aiplatform.v1.GetCustomJobRequest;
import com.google.cloud.aiplatform.v1.JobServiceGrpc;
import com.google.cloud.aiplatform.v1.JobState;
import com.google.cloud.aiplatform.v1.ListCustomJobsRequest;
import com.google.cloud.aiplatform.v1.MachineSpec;
import com.google.cloud.aiplatform.v1.PythonPackageSpec;
import com.google.cloud.aiplatform.v1.WorkerPoolSpec;
import com.google.longrunning.Operation;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.StatusRuntimeException;
import io.grpc.auth.MoreCallCredentials;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.EnumSet;
import java.util.List;

/** A job over gRPC with Google's stubs and google-auth, then over REST with the JDK's own client. */
public class GrpcJobs {
  private static final String HOST = "us-central1-aiplatform.googleapis.com";
  private static final String PARENT = "projects/my-project/locations/us-central1";

  public static void main(String[] args) throws Exception {
    GoogleCredentials credentials =
        GoogleCredentials.getApplicationDefault().createScoped(List.of("https://www.googleapis.com/auth/cloud-platform"));
    ManagedChannel channel = ManagedChannelBuilder.forAddress(HOST, 443).build();
    JobServiceGrpc.JobServiceBlockingStub jobs =
        JobServiceGrpc.newBlockingStub(channel).withCallCredentials(MoreCallCredentials.from(credentials));
    PythonPackageSpec trainer = PythonPackageSpec.newBuilder().setExecutorImageUri(args[0])
        .addPackageUris("gs://packages/trainer.tar.gz").setPythonModule("trainer.task").addArgs("print('ran')").build();
    WorkerPoolSpec pool = WorkerPoolSpec.newBuilder().setReplicaCount(1).setPythonPackageSpec(trainer)
        .setMachineSpec(MachineSpec.newBuilder().setMachineType("n1-standard-4")).build();
    CustomJob job = jobs.createCustomJob(CreateCustomJobRequest.newBuilder().setParent(PARENT)
        .setCustomJob(CustomJob.newBuilder().setDisplayName("by-java")
            .setJobSpec(CustomJobSpec.newBuilder().addWorkerPoolSpecs(pool))).build());
    GetCustomJobRequest get = GetCustomJobRequest.newBuilder().setName(job.getName()).build();
    while (!EnumSet.of(JobState.JOB_STATE_SUCCEEDED, JobState.JOB_STATE_FAILED).contains(job.getState())) {
      job = jobs.getCustomJob(get);
    }
    int listed = jobs.listCustomJobs(ListCustomJobsRequest.newBuilder().setParent(PARENT)
        .setFilter("display_name=\"by-java\"").build()).getCustomJobsCount();
    System.out.println("grpc " + job.getState() + " " + listed);

    HttpClient http = HttpClient.newHttpClient();
    credentials.refreshIfExpired();
    HttpRequest asked = HttpRequest.newBuilder(URI.create("https://" + HOST + "/v1/" + job.getName()))
        .header("Authorization", "Bearer " + credentials.getAccessToken().getTokenValue()).build();
    HttpResponse<String> answer = http.send(asked, HttpResponse.BodyHandlers.ofString());
    System.out.println("rest " + answer.statusCode() + " " + answer.body().contains("by-java"));

    Operation operation = jobs.deleteCustomJob(DeleteCustomJobRequest.newBuilder().setName(job.getName()).build());
    try {
      jobs.getCustomJob(get);
    } catch (StatusRuntimeException error) {
      System.out.println("deleted " + operation.getDone() + " " + error.getStatus().getCode());
    }
    channel.shutdown();
  }
}
