// @google-cloud/aiplatform as its own samples use it: the regional endpoint, and nothing of this machine.
'use strict';
const {v1, v1beta1} = require('@google-cloud/aiplatform');

const parent = 'projects/my-project/locations/us-central1';
const apiEndpoint = 'us-central1-aiplatform.googleapis.com';

async function main([image]) {
  const pythonPackageSpec = {
    executorImageUri: image, packageUris: ['gs://packages/trainer.tar.gz'], pythonModule: 'trainer.task',
    args: ["print('ran')"],
  };
  const workerPoolSpecs = [{machineSpec: {machineType: 'n1-standard-4'}, replicaCount: 1, pythonPackageSpec}];
  for (const [way, library, fallback] of [['v1', v1], ['v1beta1', v1beta1], ['rest', v1, true]]) {
    const client = new library.JobServiceClient({apiEndpoint, fallback});
    const customJob = {displayName: way, jobSpec: {workerPoolSpecs}};
    let [job] = await client.createCustomJob({parent, customJob});
    while (!['JOB_STATE_SUCCEEDED', 'JOB_STATE_FAILED'].includes(job.state)) [job] = await client.getCustomJob({name: job.name});
    const [listed] = await client.listCustomJobs({parent, filter: `display_name="${customJob.displayName}"`});
    console.log(way, job.state, listed.length);
    const [operation] = await client.deleteCustomJob({name: job.name});
    await operation.promise();
    const error = await client.getCustomJob({name: job.name}).then(() => undefined, error => error);
    console.log(way, 'deleted', error.code);
    const datasets = new library.DatasetServiceClient({apiEndpoint, fallback});
    console.log(way, 'datasets', (await datasets.listDatasets({parent}))[0].length);
  }
}

async function others() {
  const asked = await fetch('https://storage.googleapis.com/storage/v1/b?project=my-project').then(answer => answer.status, error => error.message);
  console.log('fetch', asked);
}

main(process.argv.slice(2)).then(others).catch(error => { console.error(error); process.exitCode = 1; });
