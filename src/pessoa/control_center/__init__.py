"""The control centre (port 9021): see and steer a cluster in the browser.

    pages/      what a person sees: NiceGUI, a file for each page
    api/        the same as JSON, with an OpenAPI document
    center.py   what both stand on: the cluster, its services, messages, groups, alerts, who may do what

Everything is asked through public protocols (Kafka's, and the REST interfaces of the other services), so it shows
Apache Kafka as well. What is asked is what a page or an alert needs in this moment: with no browser open, the control
centre asks for the lag of groups every half a minute, and for nothing else.
"""
