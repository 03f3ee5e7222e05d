try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task

from .models import Order


@task
def confirm(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    order.confirmed = True
    order.save()
    return f"confirmed to {order.email}"
