"""How to test the shop: in the sandbox jobs are kept in memory, and run when the test says so."""

from django.test import TestCase

from demora.contrib.django.applications import application
from demora.testing import Sandbox

from .models import Order


class OrderTests(TestCase):
    def test_an_order_is_confirmed_later(self) -> None:
        with Sandbox(application("default")) as sandbox:
            answer = self.client.post("/orders", {"email": "a@b.c"})
            self.assertEqual(answer.status_code, 202)
            self.assertFalse(Order.objects.get().confirmed)

            self.assertFalse(sandbox.blocking.drain().failures)
            self.assertTrue(Order.objects.get().confirmed)
            self.assertEqual(self.client.get(f"/tasks/{answer.json()['task']}").json()["value"], "confirmed to a@b.c")
