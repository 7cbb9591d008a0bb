"""After a study: what follows from it. Entries for the project file, the next sweep, the promoted job, the model's registration.

In: a project and a job as the service describes it. Out: text of the project file, or one entry of the Model Registry."""
