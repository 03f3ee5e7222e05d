from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from .models import Order
from .tasks import confirm


@csrf_exempt
def order(request: HttpRequest) -> JsonResponse:
    with transaction.atomic():  # the order and its job exist both or not at all
        order = Order.objects.create(email=request.POST["email"])
        result = confirm.enqueue(order.pk)
    return JsonResponse({"order": order.pk, "task": result.id}, status=202)


def status(request: HttpRequest, id: str) -> JsonResponse:
    result = confirm.get_result(id)
    return JsonResponse({"status": result.status, "value": result.return_value if result.is_finished else None})


urlpatterns = [path("orders", order), path("tasks/<id>", status)]
