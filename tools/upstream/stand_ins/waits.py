"""In place of an image whose jobs are only made and cancelled: it waits."""

import time

time.sleep(600)
