#!/usr/bin/env python
# coding: utf-8

# # Digits

# In[1]:


import os

import joblib
from sklearn.datasets import load_digits
from sklearn.svm import SVC


# In[2]:


x, y = load_digits(return_X_y=True)
model = SVC(gamma=0.001).fit(x[:900], y[:900])
accuracy = model.score(x[900:], y[900:])
accuracy


# In[3]:


folder = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1)
os.makedirs(folder, exist_ok=True)
joblib.dump(model, f"{folder}/model.joblib")


# In[4]:


import hypertune

hypertune.HyperTune().report_hyperparameter_tuning_metric("accuracy", accuracy, 1)
