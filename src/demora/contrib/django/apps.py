"""demora as an application of Django. It opens and starts nothing by itself."""

from django.apps import AppConfig


class DemoraConfig(AppConfig):
    name = "demora.contrib.django"
    label = "demora"
    verbose_name = "demora"
