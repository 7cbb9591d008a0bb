import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;

/** Prints what a URL answers, by Java's own client. */
class Fetch {
  public static void main(String[] args) throws Exception {
    HttpRequest asked = HttpRequest.newBuilder(URI.create(args[0])).build();
    System.out.println(HttpClient.newHttpClient().send(asked, BodyHandlers.ofString()).body());
  }
}
